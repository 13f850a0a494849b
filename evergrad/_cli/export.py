"""`evergrad export`: a trained model for other frameworks."""

import enum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from evergrad._cli.errors import explained
from evergrad._cli.overwriting import check_may_replace
from evergrad._cli.resume import Run


class Format(enum.StrEnum):
    onnx = "onnx"
    safetensors = "safetensors"


def export(
    run: Run,
    format: Annotated[Format, typer.Option(help="Of the file.")] = Format.onnx,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default model.FORMAT in the run's folder.")
    ] = None,
    scaling: Annotated[
        bool, typer.Option(help="Of a series, in ONNX: the data's units go in and forecasts come out; needs the data.")
    ] = True,
) -> None:
    """Write the trained RNN, LSTM or GRU of a run, with its readout, for ONNX or PyTorch; an RHN for ONNX.

    Example: evergrad export runs/text --format safetensors
    """
    with explained():
        from evergrad._core.printable import printable
        from evergrad._training.folder import open_run
        from evergrad._training.run import load
        from evergrad.export import export_onnx, export_safetensors
        from evergrad.export.safetensors_file import readout_path

        out = run / f"model.{format.value}" if out is None else out
        for path in [out] if format is Format.onnx else [out, readout_path(out)]:
            check_may_replace(path, format.value, "--out")
        job, progress = load(open_run(run), with_data=False)
        if format is Format.onnx:
            scaled = scaling and job.settings.task == "series"
            scale = cast(Any, job.task).scaling(job.settings, progress.step) if scaled else None
            written = export_onnx(progress.state.model, out, scale=scale)
        else:
            written = export_safetensors(progress.state.model, out)
        for path in [written] if isinstance(written, Path) else written:
            typer.echo(printable(str(path)))
