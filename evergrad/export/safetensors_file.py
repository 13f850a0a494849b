"""safetensors files that PyTorch's modules load as they are."""

from pathlib import Path

import numpy as np

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import written_whole
from evergrad._core.printable import first_line, printable
from evergrad.export.layout import FLOATS, check_weights, from_layout, kind_of, layers_of, readout_from, to_layout


def readout_path(path: Path) -> Path:
    """model.safetensors → model.readout.safetensors."""
    return path.with_suffix(f".readout{path.suffix}")


def export_safetensors(model: eg.Model, path: str | Path) -> list[Path]:
    """Two files: the cell, for `torch.nn.RNN/LSTM/GRU(...).load_state_dict`, and beside it the readout, `*.readout.*`,
    for `torch.nn.Linear(...).load_state_dict`; a Softmax readout's probabilities are the softmax of that.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=3, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "model.safetensors"
        ...     _ = eg.export.export_safetensors(model, file)
        ...     again = eg.export.import_safetensors(file)
        >>> bool(jnp.allclose(again.cell.weight, model.cell.weight))
        True
    """
    path = Path(path)
    metadata = {"cell": kind_of(layers_of(model.cell)[0]), "readout": type(model.readout).__name__}
    check_weights(model)
    readout = {"weight": np.asarray(model.readout.weight).T, "bias": np.asarray(model.readout.bias)}
    _write(path, to_layout(model.cell), metadata)
    _write(readout_path(path), readout, metadata)
    return [path, readout_path(path)]


def import_safetensors(path: str | Path, *, readout: str | None = None) -> eg.Model:
    """A model from PyTorch's weights. The readout is in the file beside it (`weight`, `bias` in *.readout.*), or in the
    same file (`readout.weight`, `readout.bias`); `readout` is "linear" or "softmax", by default what the file says.

    Examples:
        >>> model = eg.Model(eg.GRU(inputs=3, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "model.safetensors"
        ...     _ = eg.export.export_safetensors(model, file)
        ...     again = eg.export.import_safetensors(file)
        >>> bool(jnp.allclose(again.cell.weight, model.cell.weight))
        True
    """
    path = Path(path)
    tensors, metadata = _read(path)
    inside = {name.removeprefix("readout."): a for name, a in tensors.items() if name.startswith("readout.")}
    layout = {name: a for name, a in tensors.items() if not name.startswith("readout.")}
    if not inside and readout_path(path).exists():
        inside, metadata = _read(readout_path(path))
    refuse_unless(
        "weight" in inside,
        f"{path} has no readout: add `readout.weight` [outputs, units] and `readout.bias` to it, or write the "
        f"state_dict of a torch.nn.Linear to {readout_path(path).name} beside it.",
    )
    kind = (readout or metadata.get("readout", "linear")).lower()
    refuse_unless(kind in ("linear", "softmax"), f'{path}: readout="{printable(kind)}": choose "linear" or "softmax".')
    cell = from_layout(layout, str(path))
    return eg.Model(cell, readout_from(inside["weight"], inside.get("bias"), kind == "softmax", str(path)))


def _write(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    from safetensors.numpy import save

    with written_whole(path) as beside:
        arrays = {name: np.ascontiguousarray(a, np.float32) for name, a in tensors.items()}
        beside.write_bytes(save(arrays, metadata))  # save_file would make it readable by its owner alone


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The weights and biases of a file, whatever else is in it, and what it says of itself."""
    from safetensors import SafetensorError, safe_open

    refuse_unless(path.is_file(), f"{path} is not a file.")
    try:
        with safe_open(path, "numpy") as file:
            names = [name for name in file.keys() if name.startswith(("weight", "bias", "readout."))]  # noqa: SIM118
            for name in names:
                _check_dtype(path, name, file.get_slice(name).get_dtype())
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except SafetensorError as error:
        why = first_line(error)
        raise InputError(f"{path} is cut short or no safetensors file: {why}.") from None


def _check_dtype(path: Path, name: str, dtype: str) -> None:
    known = ("F16", "BF16", "F32", "F64")
    refuse_unless(
        dtype in known, f"{path}: {printable(name)} is {dtype}, and weights are {', '.join(FLOATS)}: convert it."
    )
