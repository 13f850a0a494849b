"""One safetensors file: arrays as tensors, the rest as JSON in its metadata. Nothing in it is ever executed."""

import contextlib
import hashlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import numpy as safetensors, safe_open

import evergrad as eg
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.files import written_whole
from evergrad._core.printable import brief, first_line, printable
from evergrad._registry import ESTIMATORS, name_of
from evergrad.river.machine import Settings

FORMAT = "evergrad.river"
VERSION = 5  # 1 had no experts, no intervals and no rings of newest values; 2 and 4 had other experts; 3 kept traces in one array
_CHECKSUM = "sha256"
_KEYS = {"format", "version", "content", _CHECKSUM}


def save(learner: Any, path: str | Path) -> None:
    path, tensors = Path(path), {}
    content = json.dumps({"class": type(learner).__name__, "state": _plain(_content(learner), tensors)})
    metadata = {"format": FORMAT, "version": str(VERSION), "content": content, _CHECKSUM: _checksum(content, tensors)}
    with written_whole(path) as beside:
        beside.write_bytes(safetensors.save(tensors, metadata))  # save_file would make it readable by its owner alone


def _content(learner: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(learner).items() if name != "_guard"}


def load(cls: type, path: str | Path) -> Any:
    path = Path(path)
    metadata, tensors = _read(path)
    _check_metadata(cls, path, metadata)
    with _or_damaged(path):
        _check_whole(metadata, tensors)
        content = json.loads(metadata["content"])
        kind, state = content["class"], content["state"]
    refuse_unless(kind == cls.__name__, f"{path} holds an {_named(kind)}, not an {cls.__name__}: load it with that.")
    with _or_damaged(path):
        return _learner(cls, _object(state, tensors))


def load_any(path: str | Path) -> Any:
    """The same for a file of any of our classes."""
    from evergrad import river

    path = Path(path)
    metadata, _ = _read(path)
    _check_metadata(river.OnlineRNNRegressor, path, metadata)
    with _or_damaged(path):
        kind = json.loads(metadata["content"])["class"]
    names = ("OnlineRNNRegressor", "OnlineRNNClassifier", "OnlineRNNForecaster", "OnlineRNNPool")
    known = [getattr(river, name) for name in names]
    found = [each for each in known if each.__name__ == kind]
    refuse_unless(bool(found), f"{path} holds an {_named(kind)}, which cannot be served or loaded by its name.")
    return load(found[0], path)


@contextlib.contextmanager
def _or_damaged(path: Path) -> Iterator[None]:
    """What content of other types, sizes or depth than `save` writes makes Python raise."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{path} is damaged ({why}): save the model again.") from None


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    refuse_unless(path.is_file(), f"{path} is not a file: pass the path that was given to save.")
    try:
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, tensors
    except Exception as error:  # whatever damage makes the library raise
        why = first_line(error)
        raise InputError(f"{path} is cut short or no safetensors file ({why}): save the model again.") from None


def _check_metadata(cls: type, path: Path, metadata: dict[str, str]) -> None:
    refuse_unless(
        metadata.get("format") == FORMAT, f"{path} holds no {cls.__name__}: it was not written by its save()."
    )
    refuse_unless(
        metadata.get("version") == str(VERSION),
        f"{path} is of version {_named(metadata.get('version'))} and this evergrad reads version {VERSION}: load it with "
        "the evergrad that wrote it.",
    )


def _check_whole(metadata: dict[str, str], tensors: dict[str, np.ndarray]) -> None:
    """Files of before there were checksums have none, and are believed."""
    if metadata.keys() - _KEYS:
        raise ValueError("it says what no file of ours does")
    if _CHECKSUM in metadata and metadata[_CHECKSUM] != _checksum(metadata["content"], tensors):
        raise ValueError("its checksum is wrong")


def _checksum(content: str, tensors: dict[str, np.ndarray]) -> str:
    """Of the JSON, and of every tensor's name, type, shape and bytes."""
    found = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        a = tensors[name]
        found.update(repr((name, a.dtype.str, a.shape)).encode())
        found.update(a.tobytes())
    return found.hexdigest()


def _named(value: Any) -> str:
    return printable(value[:100]) if isinstance(value, str) else brief(value)


def _learner(cls: type, state: dict[str, Any]) -> Any:
    from evergrad.river.checking import check_learner

    parameters = inspect.signature(cls).parameters
    learner = cls(**{name: state[name] for name in parameters if name in state})  # older files know fewer
    vars(learner).update(state)
    check_learner(learner)
    return learner


def _plain(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    """As JSON; arrays go into `tensors` and are named in their place."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, np.ndarray):
        name = str(len(tensors))
        tensors[name] = np.array(value, order="C")
        return {"array": name}
    for kind, (of, parts) in _CONTAINERS.items():
        if isinstance(value, of):
            return {kind: [_plain(part, tensors) for part in parts(value)]}
    for kind, (of, parts, _) in _objects().items():
        if isinstance(value, of):
            return {kind: _plain(parts(value), tensors)}
    raise InputError(
        f"a {type(value).__name__} ({value!r}) cannot be saved: name features with strings or numbers, and keys too."
    )


_CONTAINERS = {
    "dict": (dict, lambda d: [list(item) for item in d.items()]),
    "tuple": (tuple, list),
    "set": (frozenset, lambda s: sorted(s, key=repr)),
    "list": (list, list),
}


def _object(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "float":
        return float(content)
    if kind == "array":
        return tensors[content]
    if kind in _CONTAINERS:
        parts = [_object(part, tensors) for part in content]
        return {"dict": dict, "tuple": tuple, "set": frozenset, "list": list}[kind](parts)
    return _objects()[kind][2](_object(content, tensors))


def _objects() -> dict[str, tuple]:
    """What else a learner is made of: the type, what it is made of, and how it is made from that."""
    from evergrad.river.keyed import Keyed
    from evergrad.river.session import Session
    from evergrad.river.slots import Slots

    return {
        "keyed": (Keyed, Keyed.__getstate__, _revive_keyed),
        "session": (Session, Session.__getstate__, _revive_session),
        "slots": (Slots, vars, _revive_slots),
        "settings": (Settings, vars, lambda fields: Settings(**fields)),
        "estimator": (eg.Estimator, _estimator_parts, _estimator),
    }


def _estimator_parts(estimator):
    refuse_unless(
        name_of(ESTIMATORS, type(estimator)) is not None,
        f"a model with the estimator {type(estimator).__name__} cannot be saved, since load knows only "
        f"{', '.join(entry.name for entry in ESTIMATORS.values())}: register yours (evergrad/_registry.py), or keep the "
        "model with pickle.",
    )
    return [type(estimator).__name__, dict(vars(estimator))]


def _estimator(parts):
    entries = {entry.name: entry for entry in ESTIMATORS.values()}
    return entries[parts[0]].load()(**parts[1])


def _revive_session(state):
    from evergrad.river.checking import check_session
    from evergrad.river.session import Session

    check_session(state)
    new = Session.__new__(Session)
    new.__setstate__(state)
    return new


def _revive_keyed(state):
    from evergrad.river.checking import check_keyed
    from evergrad.river.keyed import Keyed

    check_keyed(state)
    new = Keyed.__new__(Keyed)
    new.__setstate__(state)
    return new


def _revive_slots(state):
    from evergrad.river.slots import Slots

    new = Slots()
    if state.keys() != vars(new).keys():
        raise ValueError("its features are not what they were")
    vars(new).update(state)
    return new
