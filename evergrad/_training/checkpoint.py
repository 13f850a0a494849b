"""Durable states: arrays and notes, written with Orbax in the background, whole or not at all, the last few kept.

A checkpoint has the arrays of a pytree by name, random keys as their data, and notes (JSON) with the format, the step, whose
it is, a checksum of every array and one of the notes themselves. Loading needs a pytree of the same form to put the arrays into; no code is ever read from
a file.

All processes of a run write, each what lies on its devices, and read what belongs there; how a state was spread when it was
written does not matter when it is read.
"""

import contextlib
import ctypes
import dataclasses
import logging
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from evergrad._core.checks import InputError
from evergrad._core.files import intact, refuse_links_below, refuse_other_kinds, with_checksum
from evergrad._core.not_none import not_none
from evergrad._training.team import ALONE, Alone, Team

# 1 had CRC-32 for checksums, which needs an array whole; 2 did not have the weights of a window's steps; 3 had no checksum
# of the notes, and did not say whose it was; 4 had what waits for the end of a stride beside the track; 5 had a horizon's
# steps in nearly twice as many slots; 6 did not have the weights of the steps of a horizon that is longer than its stride
FORMAT = 7
_WINDOW, _CELL = "state.track.weights.", "state.model.cell."
_PRODUCT = "evergrad"


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Orbax warns that a folder which is only read is only read."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or cannot be used; the message says why and what to do."""


Check = Callable[[int, dict[str, Any]], None]


class Checkpoints:
    """The checkpoints in a folder. `read_only` leaves it as it is, even what an interrupted writer left behind. Those of
    another owner are not used; who has none takes any.
    """

    def __init__(
        self,
        folder: Path,
        *,
        owner: str | None = None,
        keep: int = 3,
        read_only: bool = False,
        team: Alone | Team = ALONE,
    ):
        self.folder, self._owner, self._team = folder.absolute(), owner, team
        if not read_only:
            team.first_alone(self._clear)
        reads = ocp.CheckpointManagerOptions(max_to_keep=None, save_interval_steps=0, read_only=True, create=False)
        self._manager = self._managed(reads if read_only else ocp.CheckpointManagerOptions(max_to_keep=keep))
        self._reader = self._manager
        if team.size > 1:  # which waits for no other, so that one that cannot read holds nobody up
            alone = ocp.options.MultiprocessingOptions(team.id, {team.id}, f"process{team.id}")
            self._reader = self._managed(dataclasses.replace(reads, multiprocessing_options=alone))

    def _clear(self):
        """What an interrupted writer left behind."""
        refuse_links_below(self.folder)
        for unfinished in self.folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished)

    def _managed(self, options):
        # one folder an array: in one file for all (OCDBT), every save leaks five times as much memory inside Orbax
        processes = {"multiprocessing_options": options.multiprocessing_options}
        arrays = ocp.PyTreeCheckpointHandler(use_ocdbt=False, **processes)
        notes = ocp.JsonCheckpointHandler(**processes)
        with _unheard() if options.read_only else contextlib.nullcontext():
            return ocp.CheckpointManager(self.folder, options=options, item_handlers={"arrays": arrays, "notes": notes})

    def save(self, step: int, tree: Any, notes: dict[str, Any]) -> None:
        """Copies the arrays and returns; they are written in the background. A failure shows at the next call."""
        _give_back_memory()
        arrays = {name: _copied(leaf) for name, leaf in by_name(tree).items()}
        checksums = self._checksums(arrays)
        about = {"product": _PRODUCT, "format": FORMAT, "step": step, "owner": self._owner, "checksums": checksums}
        about = with_checksum(about | {"notes": notes})
        items = ocp.args.Composite(arrays=ocp.args.PyTreeSave(arrays), notes=ocp.args.JsonSave(about))
        self._refuse_links()
        self._or_explain(lambda: self._manager.save(step, args=items, force=True))

    def wait(self) -> None:
        """Until all is written."""
        self._or_explain(self._manager.wait_until_finished)

    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def _refuse_links(self):
        """Before Orbax deletes the oldest: where a link stands for it, that would be somebody else's."""
        for path in (self.folder, *self.folder.glob("*")):
            refuse_other_kinds(path, folder=path.is_dir())

    def load(
        self, like: Any, complain: Callable[[str], None], check: Check = lambda step, notes: None
    ) -> tuple[Any, dict[str, Any]] | None:
        """The newest usable state and its notes, or None if there is no checkpoint; `complain` hears of the others.

        `like` has the form: arrays, or their shapes and dtypes. `check` raises an error for notes that cannot be.
        """
        problems, named = [], by_name(like)
        for step in reversed(self.steps()):
            arrays, notes, why = self._read(step, named, check)
            reasons = [reason for reason in self._team.gather(why) if reason is not None]
            reasons = reasons or self._differences(arrays, notes)
            if not reasons:
                arrays = {_renamed(name, _BEFORE_5, _SINCE_5): a for name, a in not_none(arrays).items()}
                arrays = _with_window(_in_one_round(arrays, named), named)
                return put_back(like, arrays), not_none(notes)["notes"]
            problems.append(f"checkpoint {step} in {self.folder} cannot be used: {reasons[0]}")
            complain(problems[-1])
        if problems:
            raise InputError(
                f"none of the {len(problems)} checkpoints in {self.folder} can be used. The newest: {problems[0]}"
            )
        return None

    def set_aside_after(self, step: int) -> None:
        """Moves what lies beyond a step, which could not be used, and what of the rest is not of this owner, to `unreadable`
        beside the folder, so that it is neither taken for ours nor deleted."""
        self._team.first_alone(lambda: self._move_aside([n for n in self.steps() if n > step or not self._is_ours(n)]))
        self._manager.reload()

    def _is_ours(self, step):
        try:
            self._notes(step)
        except Exception:  # as in _read
            return False
        return True

    def _move_aside(self, steps):
        for late in steps:
            target = self.folder.parent / "unreadable" / str(late)
            refuse_other_kinds(target.parent, folder=True)
            target.parent.mkdir(exist_ok=True)
            while os.path.lexists(target):
                target = target.with_name(target.name + "+")
            os.rename(self.folder / str(late), target)

    def close(self) -> None:
        self._or_explain(self._manager.close)

    def _notes(self, step):
        items = self._reader.restore(step, args=ocp.args.Composite(notes=ocp.args.JsonRestore()))
        return _checked_notes(items["notes"], step, self._owner, self._team.size)

    def _read(self, step, named, check):
        """Arrays and notes, or else why they cannot be had."""
        try:
            notes = self._notes(step)
            check(step, notes["notes"])
            stored = self._reader.item_metadata(step)["arrays"]
            if notes["format"] < 7:
                named = {name: a for name, a in named.items() if not name.startswith(_WINDOW) or name in stored}
            if notes["format"] < 5 and _BEFORE_5[0] in stored:
                named = _as_before_5(named, stored)
            if notes["format"] < 6:
                named = _as_before_6(named, stored)
            check_form(named, notes["checksums"], stored)
            form = {name: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=_place(a)) for name, a in named.items()}
            how = ocp.checkpoint_utils.construct_restore_args(form)
            what = ocp.args.PyTreeRestore(form, restore_args=how)
            return self._reader.restore(step, args=ocp.args.Composite(arrays=what))["arrays"], notes, None
        except Exception as error:  # whatever a damaged file makes Orbax raise
            return None, None, _reason(error)

    def _differences(self, arrays, notes):
        found = {n: _crc(a) for n, a in arrays.items()} if notes["format"] == 1 else self._checksums(arrays)
        wrong = [name for name in sorted(found) if found[name] != notes["checksums"][name]]
        return [f"the checksum of {name} is wrong, so the file was damaged or changed." for name in wrong]

    def _checksums(self, arrays):
        """Of the arrays as a whole: the sums of what every process finds in its parts."""
        everyone = self._team.gather({name: _checksum(array) for name, array in arrays.items()})
        return {name: sum(parts[name] for parts in everyone) % (1 << 32) for name in arrays}

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


def by_name(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their path, random keys as the numbers they are made of."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): _plain(leaf) for path, leaf in leaves if hasattr(leaf, "dtype")}


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf):
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf):
    if not _is_key(leaf):
        return leaf
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.random.key_data(leaf)
    data = jax.eval_shape(jax.random.key_data, leaf)
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=leaf.sharding)


def _place(leaf: Any) -> Any:
    """Where an array of this form belongs: the first device, unless it says something else."""
    spread = isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is not None
    return leaf.sharding if spread else jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def _copied(leaf: Any) -> jax.Array:
    """A copy of its own, since the caller's memory may be given away while the file is being written."""
    return jnp.array(leaf, copy=True)


def _with_window(arrays: dict[str, jax.Array], named: dict[str, Any]) -> dict[str, jax.Array]:
    """An old format's arrays with weights for the steps of a window or a horizon: those of the cell as it is."""

    def cell(name):
        return arrays[_CELL + name.removeprefix(_WINDOW)]

    missing = {name: a for name, a in named.items() if name not in arrays}
    return arrays | {name: jnp.broadcast_to(cell(name)[None], a.shape) for name, a in missing.items()}


_SINCE_5 = tuple(f"state.track.waiting.{part}" for part in ("phase", "readout", "output"))
_BEFORE_5 = ("state.phase", "state.waiting", "state.waiting_output")
_BACK_BEFORE_5 = tuple(name.replace("state.", "back.0.", 1) for name in _BEFORE_5)


def _renamed(name: str, old: tuple[str, ...], new: tuple[str, ...]) -> str:
    for a, b in zip(old, new, strict=True):
        if name == a or name.startswith(f"{a}."):
            return b + name.removeprefix(a)
    return name


def _as_before_5(named: dict[str, Any], stored: Any) -> dict[str, Any]:
    """What a checkpoint of a former format should hold, by the names that its arrays had, and what nobody asks for now."""
    former = {_renamed(name, _SINCE_5, _BEFORE_5): a for name, a in named.items()}
    extra = [name for name in stored if _is_one_of(name, (*_BACK_BEFORE_5, "state.phase")) and name not in former]
    return former | {name: jax.ShapeDtypeStruct(stored[name].shape, stored[name].dtype) for name in extra}


_SLOTS, _COUNT = ("state.track.memories", "state.track.deltas"), "state.track.count"


def _as_before_6(named: dict[str, Any], stored: Any) -> dict[str, Any]:
    """The same with the slots that there were: 2h − 1 for a horizon of h, which is now as many as there are."""

    def former(name, a):
        there = tuple(stored[name].shape) if name in stored else a.shape
        doubled = _is_one_of(name, _SLOTS) and there == (2 * a.shape[0] - 1, *a.shape[1:])
        return jax.ShapeDtypeStruct(there, a.dtype, sharding=getattr(a, "sharding", None)) if doubled else a

    return {name: former(name, a) for name, a in named.items()}


def _in_one_round(arrays: dict[str, jax.Array], named: dict[str, Any]) -> dict[str, jax.Array]:
    """The newest steps of what was in the former slots."""
    doubled = {name for name in arrays if name in named and arrays[name].shape != named[name].shape}
    if not doubled:
        return arrays
    count, slots = arrays[_COUNT], min(len(named[name]) for name in doubled)
    first = jnp.maximum(count - slots, 0)
    newest = {name: jax.lax.dynamic_slice_in_dim(arrays[name], first, slots) for name in doubled}
    return arrays | newest | {_COUNT: jnp.minimum(count, slots)}


def _is_one_of(name: str, heads: tuple[str, ...]) -> bool:
    return any(name == head or name.startswith(f"{head}.") for head in heads)


def put_back(like: Any, arrays: dict[str, jax.Array]) -> Any:
    def back(path, leaf):
        if not hasattr(leaf, "dtype"):
            return leaf
        array = arrays[_name(path)]
        return jax.random.wrap_key_data(array) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(back, like)


def _checksum(array: jax.Array) -> int:
    """Σ value · weight modulo 2³² over those parts that this process vouches for.

    A value is the number made of an entry's bits, its weight an odd number made of the entry's place in the whole array, so
    that one changed entry of four bytes always shows, and the parts can lie anywhere. An array here is never larger than 2³² entries.
    """
    parts = (shard for shard in array.addressable_shards if shard.replica_id == 0)
    with np.errstate(over="ignore"):
        return sum(_part_checksum(np.asarray(part.data), part.index, array.shape) for part in parts) % (1 << 32)


def _part_checksum(part: np.ndarray, index: tuple[slice, ...], shape: tuple[int, ...]) -> int:
    place = np.zeros((), np.uint32)
    for cut, size in zip(index, shape, strict=True):
        along = np.arange(*cut.indices(size), dtype=np.uint32)
        place = place[..., None] * np.uint32(size) + along
    weight = place * np.uint32(0x9E3779B1)
    weight ^= weight >> np.uint32(15)
    weight *= np.uint32(0x85EBCA77)
    weight |= np.uint32(1)
    words = np.ascontiguousarray(part).reshape(*part.shape, 1).view(_WORDS[part.dtype.itemsize])
    values = sum((words[..., i].astype(np.uint32) * np.uint32(2 * i + 1) for i in range(words.shape[-1])), np.uint32(0))
    return int(np.sum(values * weight, dtype=np.uint32))


_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint32}


def _crc(array: jax.Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _checked_notes(found: Any, step: int, owner: str | None, processes: int) -> dict[str, Any]:
    """The notes of a checkpoint, if they are as they were written, and of this step and owner."""
    if not isinstance(found, dict) or found.get("product") != _PRODUCT:
        raise CheckpointError("it was not written by evergrad.")
    notes = intact(found, old=3)
    if notes["format"] > FORMAT:
        raise CheckpointError(
            f"it has format {notes['format']} and this evergrad reads up to {FORMAT}: install a newer version."
        )
    if notes["format"] == 1 and processes > 1:
        raise CheckpointError("it has format 1, which one process alone can read: go on with one for a while.")
    if not all(isinstance(notes.get(part), dict) for part in ("checksums", "notes")):
        raise CheckpointError("its notes are damaged.")
    if notes.get("step") != step:
        raise CheckpointError(f"it is the checkpoint of step {notes.get('step')}.")
    if None not in (owner, notes.get("owner")) and notes["owner"] != owner:
        raise CheckpointError("it belongs to another run, with other settings or data.")
    return notes


def check_form(named: dict[str, Any], names: Iterable[str], stored: Any) -> None:
    """Refuses what is stored under these names if it is not what belongs there."""
    strange = sorted({*named} ^ {*names})
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
    if isinstance(error, KeyError):
        return f"it has no {error}."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text[:300] + ("" if text[:300].endswith(".") else ".")
