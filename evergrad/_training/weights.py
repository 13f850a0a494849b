"""Runs that start from a model trained elsewhere."""

from pathlib import Path
from typing import Any

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.model import Model
from evergrad._core.readouts import Softmax
from evergrad.export import read_model
from evergrad.export.layout import layers_of
from evergrad.export.safetensors_file import refuse_pickle


def shape_of(path: str) -> dict[str, Any]:
    """The settings that a file of weights decides."""
    layers = layers_of(_read(path, None).cell)
    kinds = {(type(layer).__name__.lower(), layer.units) for layer in layers}
    refuse_unless(len(kinds) == 1, f"--weights {path}: its layers differ in kind or size, which runs here do not.")
    ((cell, units),) = kinds
    return {"cell": cell, "units": units, "layers": len(layers)}


def started_from(path: str, fresh: Model) -> Model:
    """The model of a file, refused where it does not fit the task that `fresh` was made for."""
    model = _read(path, "softmax" if isinstance(fresh.readout, Softmax) else "linear")

    def sizes(m):
        return (m.cell.inputs, len(m.readout.bias))

    (inputs, outputs), (wanted_inputs, wanted_outputs) = sizes(model), sizes(fresh)
    refuse_unless(
        sizes(model) == sizes(fresh),
        f"{path} reads {inputs} numbers and predicts {outputs}, but this task has {wanted_inputs} and {wanted_outputs}: "
        "choose the data, --columns and --targets that the model was trained for.",
    )
    return model


def _read(path: str, readout: str | None) -> Model:
    file = Path(path)
    refuse_pickle(file)
    refuse_unless(
        file.suffix in (".onnx", ".safetensors"),
        f"--weights {path}: a model is read from a .onnx or a .safetensors file.",
    )
    try:
        return read_model(file, readout)
    except ImportError as error:
        raise InputError(str(error)) from None
