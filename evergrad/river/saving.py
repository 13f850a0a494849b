"""One safetensors file: arrays as tensors, the rest as JSON in its metadata. Nothing in it is ever executed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, numpy as safetensors, safe_open

import evergrad as eg
from evergrad.checks import InputError, refuse_unless
from evergrad.files import written_whole
from evergrad.river.machine import Settings

FORMAT = "evergrad.river"
VERSION = 1


def save(learner: Any, path: str | Path) -> None:
    path, tensors = Path(path), {}
    content = {"class": type(learner).__name__, "state": _plain(vars(learner), tensors)}
    metadata = {"format": FORMAT, "version": str(VERSION), "content": json.dumps(content)}
    with written_whole(path) as beside:
        beside.write_bytes(safetensors.save(tensors, metadata))  # save_file would make it readable by its owner alone


def load(cls: type, path: str | Path) -> Any:
    path = Path(path)
    refuse_unless(path.is_file(), f"{path} is not a file: pass the path that was given to save.")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{path} is cut short or no safetensors file ({error}): save the model again.") from None
    refuse_unless(
        metadata.get("format") == FORMAT, f"{path} holds no {cls.__name__}: it was not written by its save()."
    )
    refuse_unless(
        metadata.get("version") == str(VERSION),
        f"{path} is of version {metadata.get('version')} and this evergrad reads version {VERSION}: load it with the "
        "evergrad that wrote it.",
    )
    content = json.loads(metadata["content"])
    refuse_unless(
        content["class"] == cls.__name__,
        f"{path} holds an {content['class']}, not an {cls.__name__}: load it with that.",
    )
    learner = cls()
    try:
        vars(learner).update(_object(content["state"], tensors))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {error}): save the model again.") from None
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
    raise InputError(f"a {type(value).__name__} ({value!r}) cannot be saved: name features with strings or numbers.")


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
    from evergrad.river.session import Session
    from evergrad.river.slots import Slots

    return {
        "session": (Session, Session.__getstate__, lambda state: _revive(Session, state)),
        "slots": (Slots, vars, lambda state: _revive_plain(Slots, state)),
        "settings": (Settings, vars, lambda fields: Settings(**fields)),
        "estimator": (eg.Estimator, _estimator_parts, lambda parts: _ESTIMATORS[parts[0]](**parts[1])),
    }


_ESTIMATORS = {kind.__name__: kind for kind in (eg.RTRL, eg.TBPTT, eg.UORO, eg.KF, eg.OK, eg.KTP)}


def _estimator_parts(estimator):
    refuse_unless(
        type(estimator) in _ESTIMATORS.values(),
        f"a model with the estimator {type(estimator).__name__} cannot be saved, since load knows only "
        f"{', '.join(_ESTIMATORS)}: keep it with pickle.",
    )
    return [type(estimator).__name__, dict(vars(estimator))]


def _revive(cls, state):
    new = cls.__new__(cls)
    new.__setstate__(state)
    return new


def _revive_plain(cls, state):
    new = cls.__new__(cls)
    vars(new).update(state)
    return new
