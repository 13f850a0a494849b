"""States and models in a file: arrays and JSON in one archive of NumPy's (.npz), with a checksum. No code is read from it.

The arrays are numbered; `about` is a JSON document with the name, dtype, shape and SHA-256 of each, and a checksum of itself.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from evergrad._core.checks import InputError, is_traced, refuse_given_away, refuse_unless
from evergrad._core.driver import State
from evergrad._core.files import intact, parse, read_regular, with_checksum, written_whole
from evergrad._core.learner import Learner
from evergrad._core.model import Model
from evergrad._core.printable import first_line, printable

FORMAT = 1
_PRODUCT, _ABOUT = "evergrad", "about"


def copy(tree: Any) -> Any:
    """A state, a model, or anything else, with arrays of its own, which no step takes away.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> state = learner.init(batch=2, key=key)
        >>> best = eg.copy(state.model)
        >>> state, _ = learner.step(state, jnp.ones((2, 1)), jnp.ones((2, 1)))
        >>> best.cell.units  # still there
        4
    """
    refuse_given_away(tree, "eg.copy(tree): what is to be copied")
    return jax.tree.map(lambda a: jnp.copy(a) if isinstance(a, jax.Array) else a, tree)


def save(path: str | Path, what: State | Model) -> Path:
    """Writes a learner's state, or a model, to a file, whole or not at all; `load` reads it back.

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> learner = eg.Learner(model, eg.RTRL(), optax.adam(1e-2))
        >>> state = learner.init(batch=2, key=key)
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = eg.save(f"{folder}/state.npz", state)
        ...     again = eg.load(path, learner)
        >>> again.hidden.shape
        (2, 4)
    """
    path = Path(path)
    refuse_unless(
        isinstance(what, State | Model), f"eg.save(path, ...) takes a state or a model, not {type(what).__name__}."
    )
    refuse_given_away(what, f"eg.save({str(path)!r}, ...): this {_kind(what)}")
    refuse_unless(
        not is_traced(what), "eg.save cannot be used inside jit, nor on arrays that other processes hold a part of."
    )
    if isinstance(what, State):
        refuse_unless(
            what.pending is None,
            "eg.save(path, state): this state has a prediction whose target has not come: call learner.learn(state, y) first.",
        )
    arrays = {name: np.asarray(leaf) for name, leaf in _named(what).items()}
    with written_whole(path) as beside:
        beside.write_bytes(_archive(arrays, _about(what)))
    return path


def load(path: str | Path, like: Learner | Model) -> Any:
    """The state that was saved, for a learner made as the one that had it; or the model, for a model made as it was.

    A state is put on one device, whatever it was spread over, and gives its memory away as it did before (`init(donate=)`).

    Examples:
        >>> model = eg.Model(eg.RNN(inputs=1, units=4, key=key), eg.Linear(units=4, outputs=1, key=key))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     again = eg.load(eg.save(f"{folder}/model.npz", model), model)
        >>> bool((again.cell.weight == model.cell.weight).all())
        True
    """
    path = Path(path)
    refuse_unless(
        isinstance(like, Learner | Model),
        f"eg.load(path, ...) needs the Learner of the state, or a Model, not {type(like).__name__}.",
    )
    about, stored = _read(path)
    kind = "state" if isinstance(like, Learner) else "model"
    if about.get("kind") == "state" and kind == "model":
        stored = {name.removeprefix("model."): a for name, a in stored.items() if name.startswith("model.")}
    else:
        refuse_unless(
            about.get("kind") == kind,
            f"{path} holds a {printable(str(about.get('kind')))}, not a {kind}: load it with a Model of the same form.",
        )
    form = _form(like, about, path) if isinstance(like, Learner) else like
    _check_fits(_named(form), stored, path)
    return _put_back(form, stored)


def _kind(what: State | Model) -> str:
    return "state" if isinstance(what, State) else "model"


def _about(what: State | Model) -> dict[str, Any]:
    document = {"product": _PRODUCT, "format": FORMAT, "kind": _kind(what)}
    if isinstance(what, State):
        document |= {"batch": len(what.hidden), "donate": what.donate, "generator": what.generator}
    return document


def _form(learner: Learner, about: dict[str, Any], path: Path) -> State:
    """The state that a learner would have, as shapes."""
    batch, donate, generator = (about.get(name) for name in ("batch", "donate", "generator"))
    refuse_unless(
        type(batch) is int and batch > 0 and type(donate) is bool and isinstance(generator, str), _damaged(path)
    )

    def make():
        key = jax.random.key(0, impl=generator)
        return dataclasses.replace(learner._start(batch, key), donate=donate)

    with _or_damaged(path):
        return eqx.filter_eval_shape(make)


def _named(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by where they are in it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves if hasattr(leaf, "dtype")}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _archive(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> bytes:
    listed = {name: {"dtype": a.dtype.name, "shape": list(a.shape), "sha256": _digest(a)} for name, a in arrays.items()}
    document = json.dumps(with_checksum(about | {"arrays": listed})).encode()
    raw = {str(i): np.frombuffer(a.tobytes(), np.uint8) for i, a in enumerate(arrays.values())}
    file = io.BytesIO()
    contents: Any = {_ABOUT: np.frombuffer(document, np.uint8)} | raw
    np.savez(file, **contents)
    return file.getvalue()


def _digest(a: np.ndarray) -> str:
    return hashlib.sha256(a.tobytes()).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the file says of itself, and its arrays, refused unless both are what was written."""
    refuse_unless(path.is_file(), f"{path} is not a file: pass the path that was given to eg.save.")
    with _or_damaged(path), np.load(_opened(path), allow_pickle=False) as file:
        about = parse(file[_ABOUT].tobytes())
        refuse_unless(isinstance(about, dict) and about.get("product") == _PRODUCT, "evergrad did not write it")
        about = intact(about)
        newer = about["format"] > FORMAT
        refuse_unless(not newer, f"it has format {about['format']}, and this evergrad reads up to {FORMAT}")
        return about, {name: _array(file[str(i)], said) for i, (name, said) in enumerate(about["arrays"].items())}


def _opened(path: Path) -> io.BytesIO:
    """The file, if it is one of many arrays: of any other NumPy would say how to unpickle it."""
    content = io.BytesIO(read_regular(path))
    refuse_unless(zipfile.is_zipfile(content), "it is no .npz file, or not a whole one")
    content.seek(0)
    return content


def _array(raw: np.ndarray, said: dict[str, Any]) -> np.ndarray:
    content = raw.tobytes()
    refuse_unless(hashlib.sha256(content).hexdigest() == said["sha256"], "the checksum of an array is wrong")
    return np.frombuffer(content, jnp.dtype(said["dtype"])).reshape(said["shape"])


def _damaged(path: Path, why: str = "its notes are not what eg.save writes") -> str:
    return f"{path} is damaged, or was not written by eg.save ({why}): save it again."


@contextlib.contextmanager
def _or_damaged(path: Path) -> Iterator[None]:
    """What content that `save` did not write makes Python, NumPy and zipfile raise."""
    try:
        yield
    except (
        OSError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        raise InputError(_damaged(path, first_line(error))) from None


def _check_fits(form: dict[str, Any], stored: dict[str, np.ndarray], path: Path) -> None:
    strange = sorted({*form} ^ {*stored})
    remedy = "make the model, the estimator and the optimiser as they were when it was saved"
    refuse_unless(
        not strange, f"{path} does not fit: {printable(', '.join(strange[:3]))} is in only one of the two: {remedy}."
    )
    for name, a in form.items():
        there = stored[name]
        refuse_unless(
            there.shape == tuple(a.shape) and there.dtype == a.dtype,
            f"{path} does not fit: {printable(name)} is {there.dtype}{list(there.shape)} there and {a.dtype}{list(a.shape)} here: "
            f"{remedy}.",
        )


def _put_back(form: Any, stored: dict[str, np.ndarray]) -> Any:
    def back(path, leaf):
        return jnp.asarray(stored[_name(path)]) if hasattr(leaf, "dtype") else leaf

    return jax.tree_util.tree_map_with_path(back, form)
