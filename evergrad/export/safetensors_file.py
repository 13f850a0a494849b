"""safetensors files that PyTorch's modules load as they are."""

import re
from pathlib import Path

import numpy as np

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import written_whole
from evergrad._core.printable import first_line, printable
from evergrad.export.layout import (
    FLOATS,
    NAMES,
    check_weights,
    from_layout,
    kind_of,
    layers_of,
    readout_from,
    to_layout,
)


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
    """A model from PyTorch's weights: a state dict of a cell alone, or of a whole model with one recurrent module, of any
    number of layers and under any name (`lstm.weight_ih_l0`, `encoder.rnn.weight_ih_l0`), and one linear map after it
    (`fc.weight`, `fc.bias`). That of a cell alone has its readout in the file beside it (`weight`, `bias` in *.readout.*).

    `readout` is "linear" or "softmax", by default what the file says.

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
    refuse_pickle(path)
    tensors, metadata = _read(path)
    layout, inside = _parts(tensors, path)
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


def refuse_pickle(path: Path) -> None:
    """Names the line that turns a file of torch.save into one that can be read."""
    refuse_unless(
        path.suffix not in (".pt", ".pth", ".ckpt", ".bin", ".pkl"),
        f"{path} is a pickle of PyTorch's, which may run code when it is opened, and is not read here. Turn it into a safetensors "
        f"file: `from safetensors.torch import save_file; save_file(torch.load({str(path)!r}, weights_only=True), "
        f"{str(path.with_suffix('.safetensors'))!r})`.",
    )


def _parts(tensors: dict[str, np.ndarray], path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The weights of the recurrent module, by their names within it, and those of the readout."""
    heads = sorted({found[1] for found in map(_FIRST.fullmatch, tensors) if found})
    refuse_unless(
        len(heads) < 2,
        f"{path} has {len(heads)} recurrent modules ({printable(', '.join(heads))}): one, with all its layers, can be imported.",
    )
    head = heads[0] if heads else ""
    own = [name for name in tensors if name.startswith(head) and "." not in name[len(head) :]]
    layout = {_numbered(name[len(head) :]): tensors[name] for name in own}
    others = {name: a for name, a in tensors.items() if name not in own}
    maps = [name.removesuffix("weight") for name in others if name.endswith(".weight") and others[name].ndim > 1]
    named = "readout." if "readout.weight" in others else maps[0] if len(maps) == 1 else None
    left = sorted(name for name in others if named is None or not name.startswith(named))
    refuse_unless(
        not left,
        f"{path} has {printable(', '.join(left[:4]))} beside its recurrent module: a model here is that and one linear map after "
        "it. Take out of the state dict what is not needed, or train the rest elsewhere.",
    )
    return layout, {} if named is None else {name.removeprefix(named): a for name, a in others.items()}


_FIRST = re.compile(r"(.*\.|)weight_ih(?:_l0)?")


def _numbered(name: str) -> str:
    """torch.nn.LSTMCell does not number its one layer."""
    return f"{name}_l0" if name in NAMES else name


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
            names = [name for name in file.keys() if _WEIGHTS.search(name)]  # noqa: SIM118
            for name in names:
                _check_dtype(path, name, file.get_slice(name).get_dtype())
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except SafetensorError as error:
        why = first_line(error)
        raise InputError(f"{path} is cut short or no safetensors file: {why}.") from None


_WEIGHTS = re.compile(r"(?:^|\.)(?:weight|bias)[^.]*$")


def _check_dtype(path: Path, name: str, dtype: str) -> None:
    known = ("F16", "BF16", "F32", "F64")
    refuse_unless(
        dtype in known, f"{path}: {printable(name)} is {dtype}, and weights are {', '.join(FLOATS)}: convert it."
    )
