"""What a file must hold to be a learner: sizes and types are looked at before anything is made of them."""

from typing import Any

import numpy as np

import evergrad as eg
from evergrad.river.crowd import crowd
from evergrad.river.keyed import Keyed, fresh
from evergrad.river.machine import CELLS, OPTIMISERS, Machine, Settings, machine
from evergrad.river.session import Session
from evergrad.river.slots import Slots
from evergrad.river.store import SEEN, Store


def need(ok: bool, why: str) -> None:
    if not ok:
        raise ValueError(why)


def check_session(state: Any) -> None:
    """The state of a `Session`, whose arrays must be those of its settings."""
    need(isinstance(state, dict) and isinstance(state.get("settings"), Settings), "it has no settings")
    settings, arrays = state["settings"], state["arrays"]
    need(isinstance(arrays, list) and all(isinstance(a, np.ndarray) for a in arrays), "it has no arrays")
    least = settings.units * (settings.units + settings.slots)
    _check_settings(settings, sum(a.size for a in arrays), least)
    found = machine(settings)
    _check_arrays(found.buffers.shapes, arrays)
    _check_samples(found, [*state["pending"], *([] if state.get("twin") is None else [state["twin"]])])
    _check_hidden(found, state["hidden"])
    _check_rates(state)


def _check_rates(state: Any) -> None:
    rates = state["rates"]
    need(_is_real(rates, (2,)) and bool((rates > 0).all()), f"its learning rate and clip are {rates!r}")
    need(_is_count(state["seed"]), f"its seed is {state['seed']!r}")


def check_keyed(state: Any) -> None:
    """The state of a pool's `Keyed`, whose arrays must be those of its settings, with one row a key."""
    need(isinstance(state, dict) and isinstance(state.get("settings"), Settings), "it has no settings")
    settings, shared, store = state["settings"], state["shared"], state["store"]
    need(isinstance(shared, list) and all(isinstance(a, np.ndarray) for a in shared), "it has no network")
    _check_settings(settings, sum(a.size for a in shared), settings.units * settings.slots)
    need(
        settings.lanes == 1 and settings.classes == 0 and settings.estimator == eg.RTRL(), "its settings are no pool's"
    )
    found = crowd(settings)
    _check_arrays(found.buffers.shapes, shared)
    _check_rates(state)
    keys, wanted = store["keys"], Store(fresh(np.zeros(found.width, settings.dtype), settings.slots)).fresh
    need(isinstance(keys, list) and len(set(keys)) == len(keys) and None not in keys, "its keys are no keys")
    need(store["arrays"].keys() == wanted.keys() and store["fresh"].keys() == wanted.keys() - {SEEN}, "it lacks arrays")
    for name, a in wanted.items():
        _check_array(store["arrays"][name], (len(keys), *a.shape), a.dtype)
    for name in store["fresh"]:
        _check_array(store["fresh"][name], wanted[name].shape, wanted[name].dtype)
    need(_is_count(store["clock"]) and _is_count(store["forgotten"]), "its samples are not counted")


def check_learner(learner: Any) -> None:
    """A learner as it was put together."""
    slots, session = learner._slots, learner._session
    need(isinstance(slots, Slots), "it has no features")
    places = [*slots.places.values(), *(place for each in slots.categories.values() for place in each.values())]
    need(sorted(places) == list(range(len(slots.origins))), "its features are not one to a slot")
    need(all(isinstance(origin, float) for origin in slots.origins), "its features have no origins")
    need({*slots.kinds} == {*slots.places, *slots.categories}, "its features have no kinds")
    need(session is None or isinstance(session, Session | Keyed), "it has no session")
    if session is not None:
        need(max(len(slots), learner._room[0]) <= session.settings.slots, "it has more features than its network")
        need(learner._classes() == session.settings.classes, "it has other classes than its network")
    need(isinstance(learner.notes, dict), "its notes are none")
    room = learner._room
    need(isinstance(room, tuple) and len(room) == 2 and all(map(_is_count, room)), "it has no room for features")
    _check_past(learner, None if session is None else session.settings.lanes)


def _check_settings(settings: Settings, entries: int, least: int) -> None:
    """Sizes that a file with so many entries can have: what they announce, `least` numbers and more, is in it."""
    units, slots, lanes, classes = sizes = (settings.units, settings.slots, settings.lanes, settings.classes)
    need(all(_is_count(size) for size in sizes) and min(units, slots, lanes) > 0, f"its sizes are {sizes}")
    need(_is_count(settings.layers) and 0 < settings.layers <= entries, f"its layers are {settings.layers}")
    need(settings.cell in CELLS and settings.optimiser in OPTIMISERS, "its cell or its optimiser is unknown")
    need(settings.dtype in ("float32", "float64"), f"its numbers are {settings.dtype!r}")
    need(isinstance(settings.estimator, eg.Estimator), "it has no estimator")
    parameters = [value for value in vars(settings.estimator).values() if _is_count(value)]
    largest = max(least, lanes * slots, units * classes, *parameters, 0)
    need(largest <= entries, f"it announces {largest:,} numbers or more, and there are {entries:,}")


def _check_arrays(forms: list[Any], arrays: list[np.ndarray]) -> None:
    need(len(arrays) == len(forms), f"it has {len(arrays)} arrays, not {len(forms)}")
    for a, form in zip(arrays, forms, strict=True):
        _check_array(a, form.shape, form.dtype)


def _check_array(a: Any, shape: tuple[int, ...], dtype: Any) -> None:
    need(isinstance(a, np.ndarray), "an array is none")
    need(
        a.shape == shape and a.dtype.kind == dtype.kind,
        f"an array is {a.dtype}{list(a.shape)}, not {dtype}{list(shape)}",
    )


def _check_samples(found: Machine, samples: list[Any]) -> None:
    lanes, slots = found.settings.lanes, found.settings.slots
    for _, raw, last, z, told, before, first, repeats in samples:
        need(_is_real(raw, (lanes, slots)) and _is_real(z, (lanes, slots)), "a sample that waits has other features")
        need(_is_real(told) and len(told) == lanes, "a sample that waits was told nothing")
        need(_is_real(last, (lanes,)) or _is_id(last, (lanes,)), "a sample that waits has other targets")
        need(isinstance(first, bool) and _is_count(repeats), "a sample that waits is damaged")
        _check_hidden(found, before)


def _check_hidden(found: Machine, hidden: Any) -> None:
    m = found.settings.layers * found.settings.units * CELLS[found.settings.cell].states
    need(hidden is None or _is_real(hidden, (found.settings.lanes, m)), "a hidden state is of another size")


def _check_past(learner: Any, lanes: int | None) -> None:
    """The newest targets or labels of every lane."""
    known, last = getattr(learner, "_known", None), getattr(learner, "_last", None)
    need(known is None or (_is_real(known) and known.ndim == 2), "its last targets are no numbers")
    need(last is None or (_is_id(last) and last.ndim == 1), "its last labels are no numbers")
    for a in (known, last):
        need(a is None or len(a) == lanes, "its last targets are of other lanes")
    labels = getattr(learner, "_labels", [])
    need(isinstance(labels, list) and all(isinstance(a, bool | int | float | str) for a in labels), "no labels")
    need(last is None or bool(np.all((last >= -1) & (last < len(labels)))), "its last labels are unknown")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_real(a: Any, shape: tuple[int, ...] | None = None) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f" and shape in (None, a.shape)


def _is_id(a: Any, shape: tuple[int, ...] | None = None) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "i" and shape in (None, a.shape)
