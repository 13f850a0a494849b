"""Trained models out to, and in from, ONNX and PyTorch's layout. Needs `pip install evergrad[export]`."""

from evergrad.export.onnx_file import export_onnx as export_onnx, import_onnx as import_onnx
from evergrad.export.safetensors_file import (
    export_safetensors as export_safetensors,
    import_safetensors as import_safetensors,
)


def read_model(file, readout=None):
    """The model in an .onnx or .safetensors file, by the ending of its name.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=3, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "model.onnx"
        ...     _ = eg.export.export_onnx(model, file)
        ...     again = eg.export.read_model(file)
        >>> bool(jnp.allclose(again.cell.weight, model.cell.weight))
        True
    """
    return (import_onnx if file.suffix == ".onnx" else import_safetensors)(file, readout=readout)
