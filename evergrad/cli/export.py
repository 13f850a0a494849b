"""`evergrad export` and `evergrad import`: trained models out to, and in from, other frameworks."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from evergrad.export import export_onnx, export_safetensors, import_onnx, import_safetensors


class Format(enum.StrEnum):
    onnx = "onnx"
    safetensors = "safetensors"


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    format: Annotated[Format, typer.Option(help="Of the file.")] = Format.onnx,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default model.FORMAT in the run's folder.")
    ] = None,
) -> None:
    """Write the trained RNN, LSTM or GRU of a run, with its readout, for ONNX or PyTorch."""
    from evergrad.training import load_model

    out = run / f"model.{format.value}" if out is None else out
    written = export_onnx(load_model(run), out) if format is Format.onnx else export_safetensors(load_model(run), out)
    for path in [written] if isinstance(written, Path) else written:
        typer.echo(path)


def import_(
    file: Annotated[Path, typer.Argument(help="An .onnx model, or a .safetensors file in PyTorch's layout.")],
    run: Annotated[Path, typer.Argument(help="Folder to make, from which training goes on.")],
    readout: Annotated[
        str | None, typer.Option(help="linear or softmax, for a safetensors file that does not say.")
    ] = None,
) -> None:
    """Make a run's folder of an RNN, LSTM or GRU from elsewhere, to fine-tune it online."""
    from evergrad.training import save_model

    save_model(read_model(file, readout), run)
    typer.echo(run)


def read_model(file: Path, readout: str | None = None):
    """By the ending of the name."""
    return import_onnx(file) if file.suffix == ".onnx" else import_safetensors(file, readout=readout)
