"""Durable states: arrays and notes, written with Orbax in the background, whole or not at all, the last few kept.

A checkpoint has the arrays of a pytree by name, random keys as their data, and notes (JSON) with the format, the step
and a checksum of every array. Loading needs a pytree of the same form to put the arrays into; no code is ever read from
a file.
"""

import ctypes
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

FORMAT = 1
_PRODUCT = "evergrad"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; the message says why and what to do."""


class Checkpoints:
    """The checkpoints in a folder. `read_only` leaves it as it is, even what an interrupted writer left behind."""

    def __init__(self, folder: Path, *, keep: int = 3, read_only: bool = False):
        self.folder = folder.absolute()
        if not read_only:
            for unfinished in self.folder.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(unfinished)
        options = (
            ocp.CheckpointManagerOptions(max_to_keep=None, save_interval_steps=0, read_only=True, create=False)
            if read_only
            else ocp.CheckpointManagerOptions(max_to_keep=keep)
        )
        # one folder an array: in one file for all (OCDBT), every save leaks five times as much memory inside Orbax
        handlers = {"arrays": ocp.PyTreeCheckpointHandler(use_ocdbt=False), "notes": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def save(self, step: int, tree: Any, notes: dict[str, Any]) -> None:
        """Copies the arrays and returns; they are written in the background. A failure shows at the next call."""
        _give_back_memory()
        arrays = {name: _copied(leaf) for name, leaf in _named(tree).items()}
        checksums = {name: _checksum(array) for name, array in arrays.items()}
        notes = {"product": _PRODUCT, "format": FORMAT, "step": step, "checksums": checksums, "notes": notes}
        items = ocp.args.Composite(arrays=ocp.args.PyTreeSave(arrays), notes=ocp.args.JsonSave(notes))
        self._or_explain(lambda: self._manager.save(step, args=items, force=True))

    def wait(self) -> None:
        """Until all is written."""
        self._or_explain(self._manager.wait_until_finished)

    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def load(self, like: Any, complain: Callable[[str], None]) -> tuple[Any, dict[str, Any]] | None:
        """The newest readable state and its notes, or None if there is no checkpoint; `complain` hears of the others.

        `like` has the form: arrays, or their shapes and dtypes.
        """
        problems = []
        for step in reversed(self.steps()):
            try:
                return self._load(step, like)
            except Exception as error:  # whatever a damaged file makes Orbax raise
                problems.append(f"checkpoint {step} in {self.folder} cannot be used: {_reason(error)}")
                complain(problems[-1])
        if problems:
            raise CheckpointError(
                f"none of the {len(problems)} checkpoints in {self.folder} can be used. The newest: {problems[0]}"
            )
        return None

    def set_aside_after(self, step: int) -> None:
        """Moves what lies beyond a step, which could not be used, to `unreadable` beside the folder."""
        for late in [each for each in self.steps() if each > step]:
            target = self.folder.parent / "unreadable" / str(late)
            target.parent.mkdir(exist_ok=True)
            while target.exists():
                target = target.with_name(target.name + "+")
            shutil.move(self.folder / str(late), target)
        self._manager.reload()

    def close(self) -> None:
        self._or_explain(self._manager.close)

    def _load(self, step, like):
        items = self._manager.restore(step, args=ocp.args.Composite(notes=ocp.args.JsonRestore()))
        notes = items["notes"]
        _check_notes(notes)
        named = _named(like)
        _check_form(named, notes["checksums"], self._manager.item_metadata(step)["arrays"])
        device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        form = {name: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=device) for name, a in named.items()}
        how = ocp.checkpoint_utils.construct_restore_args(form)
        items = self._manager.restore(
            step, args=ocp.args.Composite(arrays=ocp.args.PyTreeRestore(form, restore_args=how))
        )
        for name, array in items["arrays"].items():
            if _checksum(array) != notes["checksums"][name]:
                raise CheckpointError(f"the checksum of {name} is wrong, so the file was damaged or changed.")
        return _put_back(like, items["arrays"]), notes["notes"]

    def _or_explain(self, action):
        try:
            action()
        except Exception as error:  # OSError, or what Orbax and its threads make of one
            kept = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(
                f"a checkpoint could not be written to {self.folder}: {_reason(error)} Complete checkpoints there: "
                f"{kept}. Make room or mend the folder's permissions, then resume."
            ) from error


def _give_back_memory() -> None:
    """What the last save freed. The C library would keep it in the arenas of Orbax's threads, more with every save."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _named(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their path, random keys as the numbers they are made of."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): _plain(leaf) for path, leaf in leaves if hasattr(leaf, "dtype")}


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf):
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf):
    if not _is_key(leaf):
        return leaf
    return (
        jax.eval_shape(jax.random.key_data, leaf)
        if isinstance(leaf, jax.ShapeDtypeStruct)
        else jax.random.key_data(leaf)
    )


def _copied(leaf: Any) -> jax.Array:
    """A copy of its own, since the caller's memory may be given away while the file is being written."""
    return jnp.array(leaf, copy=True)


def _put_back(like: Any, arrays: dict[str, jax.Array]) -> Any:
    def back(path, leaf):
        if not hasattr(leaf, "dtype"):
            return leaf
        array = arrays[_name(path)]
        return jax.random.wrap_key_data(array) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(back, like)


def _checksum(array: jax.Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _check_notes(notes: Any) -> None:
    if not isinstance(notes, dict) or notes.get("product") != _PRODUCT:
        raise CheckpointError("it was not written by evergrad.")
    if notes["format"] > FORMAT:
        raise CheckpointError(
            f"it has format {notes['format']} and this evergrad reads up to {FORMAT}: install a newer version."
        )


def _check_form(named: dict[str, Any], checksums: dict[str, int], stored: Any) -> None:
    strange = sorted({*named} ^ {*checksums})
    if strange:
        raise CheckpointError(f"it does not match the settings: {strange[0]} is in only one of the two.")
    for name, array in named.items():
        if tuple(stored[name].shape) != tuple(array.shape) or stored[name].dtype != array.dtype:
            raise CheckpointError(
                f"it does not match the settings: {name} is {stored[name].dtype}{list(stored[name].shape)} there and "
                f"{array.dtype}{list(array.shape)} here."
            )


def _reason(error: BaseException) -> str:
    """What the operating system said, if it did, or else an error's first line, without what libraries add to it."""
    system = re.search(r": ([\w ]+) \[os_error_code", str(error))
    if system:
        return f"{system[1]}."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text[:300] + ("" if text[:300].endswith(".") else ".")
