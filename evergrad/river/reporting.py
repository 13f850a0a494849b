"""How a stream learner goes, in numbers."""

from typing import Any, cast

import numpy as np

from evergrad.river.keyed import Keyed
from evergrad.river.machine import Inside
from evergrad.river.session import Session
from evergrad.river.slots import Slots

JUDGED = 10  # samples of a key, from which on its error says something


def report(session: Session, slots: Slots) -> dict[str, Any]:
    inside = session.machine.inside(session.leaves)
    about = _labels if session.settings.classes else _numbers
    return {
        "samples": session.taken,
        "waiting": len(session.pending),
        **about(inside),
        "clipped": float(inside.state.optimiser[0].share),
        "scales": _scales(inside, slots, slots.origins),
    }


def report_pool(session: Keyed | None) -> dict[str, Any]:
    """Of all keys; their errors have units of their own, so that only what is relative can be put together."""
    if session is None:
        return {"samples": 0, "keys": 0, "forgotten": 0}
    store = session.store
    inside = session.crowd.inside(session.shared, store.read(np.arange(len(store.names)))["state"])
    judge = cast(Any, inside.head).judge
    errors = np.asarray(judge.errors)[np.asarray(judge.count) >= JUDGED]
    relative = errors[errors[:, 0] > 0, -1] / errors[errors[:, 0] > 0, 0]
    low, middle, high = np.quantile(relative, [0.25, 0.5, 0.75]).tolist() if len(relative) else [None] * 3
    return {
        "samples": store.clock,
        "keys": len(store.names),
        "forgotten": store.forgotten,
        "bytes a key": session.bytes_a_key,
        "error against persistence": middle,
        "error against persistence, lower quartile of the keys": low,
        "error against persistence, upper quartile of the keys": high,
        "clipped": float(inside.state.optimiser[0].share),
    }


def report_key(session: Keyed, slots: Slots, row: int) -> dict[str, Any]:
    found = session.store.read(np.array([row]))
    inside = session.crowd.inside(session.shared, found["state"])
    numbers = _numbers(inside)
    return {**numbers, "scales": _scales(inside, slots, found["origins"][0])}


def _numbers(inside: Inside) -> dict[str, Any]:
    from evergrad.river import experts, number

    head = cast(Any, inside.head)
    judge = head.judge
    *each, ours = _columns(judge.errors)
    found = {"error": ours, **{f"error of {name}": e for name, e in zip(number.NAMES, each, strict=True)}}
    with np.errstate(divide="ignore", invalid="ignore"):
        found["error against persistence"] = _plain(np.asarray(judge.errors)[:, -1] / np.asarray(judge.errors)[:, 0])
    shares = np.stack([np.asarray(experts.shares(_lane(judge.mixture, i))) for i in range(len(judge.count))])
    found["shares"] = dict(zip(number.NAMES, _columns(shares), strict=True))
    found["coverage of the interval of 90 %"] = _plain(np.asarray(judge.covered))
    found["mean change"] = _plain(np.asarray(head.part.scale))
    return found


def _labels(inside: Inside) -> dict[str, Any]:
    from evergrad.river import label

    judge, found = cast(Any, inside.head.judge), {}
    for what, values in (("share of errors", judge.errors), ("log loss", judge.losses)):
        *each, ours = _columns(values)
        found |= {what: ours, **{f"{what} of {name}": e for name, e in zip(label.NAMES, each, strict=True)}}
    found["shares"] = dict(zip(label.NAMES, _columns(judge.shares), strict=True))
    return found


def _scales(inside: Inside, slots: Slots, origins: Any) -> dict[Any, dict[str, Any]]:
    """Mean and spread of every numeric feature, in its own unit; those made here (the last target) are pairs."""
    mean, spread = np.asarray(inside.scaler.mean), np.asarray(inside.scaler.spread)
    return {
        name: {"mean": _plain(origins[place] + mean[:, place]), "spread": _plain(spread[:, place])}
        for name, place in slots.places.items()
    }


def _lane(tree: Any, lane: int) -> Any:
    import jax

    return jax.tree.map(lambda a: a[lane], tree)


def _columns(values: Any) -> list[Any]:
    return [_plain(column) for column in np.asarray(values).T]


def _plain(values: np.ndarray) -> Any:
    """A number for one lane, a list for several."""
    return values.item() if len(values) == 1 else values.tolist()
