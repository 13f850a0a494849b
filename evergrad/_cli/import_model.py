"""`evergrad import TASK`: a model trained elsewhere goes on learning here, online."""

from typing import Annotated, Any

import typer

from evergrad._cli.options import with_options
from evergrad._cli.train import Config, Out, start_run
from evergrad._training.machine_options import machine_fields
from evergrad._training.settings import TASKS, fields

Model = Annotated[
    str,
    typer.Argument(
        help="An RNN, LSTM or GRU with its readout: .onnx, or .safetensors in PyTorch's layout.", metavar="MODEL"
    ),
]

import_app = typer.Typer(
    no_args_is_help=True,
    help="Fine-tune a model of PyTorch or ONNX online.\n\n"
    "Example: evergrad import series lstm.safetensors --data rates.csv --out runs/rates",
)


def _command(task: str):
    options = [field for name, field in fields(task).items() if name not in ("cell", "units", "weights", "initial")]

    @with_options([*options, *machine_fields()], task)
    def command(model: Model, out: Out, config: Config = None, **given: Any) -> None:
        start_run(task, out, config, given | {"weights": model})

    command.__doc__ = f"""Fine-tune on {task}; all but the cell and its size is as with `evergrad train {task}`.

    Example: evergrad import {task} model.onnx{" --data FILE" if task in ("text", "series") else ""} --out runs/{task}
    """
    return command


for task in TASKS:
    import_app.command(task)(_command(task))
