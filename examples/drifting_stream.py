"""A drifting stream, learned live: the error jumps when the rule changes, and comes down again.

    python examples/drifting_stream.py docs/images/drifting_stream.png

A sensor reads a wave whose period, amplitude and level change twice. Beside the model that goes on learning runs a copy
that stops at the first change: what is not learned any more goes wrong for good.
"""

import copy
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import numpy as np

from evergrad import _style as style
from evergrad.river import OnlineRNNRegressor

SAMPLES, CHANGES, SEED, AHEAD = 2400, (800, 1600), 0, 3


def stream():
    """Pairs of a reading and the reading three samples later."""
    rng = np.random.default_rng(SEED)
    t = np.arange(SAMPLES + AHEAD)
    regime = np.searchsorted(CHANGES, t, side="right")
    period, amplitude, level = (
        np.array([25, 14, 40])[regime],
        np.array([1, 2, 1.5])[regime],
        np.array([0, 1, -2])[regime],
    )
    phase = np.cumsum(2 * np.pi / period)
    wave = level + amplitude * np.sign(np.sin(phase)) * np.abs(np.sin(phase)) ** 0.5 + 0.05 * rng.normal(size=len(t))
    return [({"reading": a}, b) for a, b in zip(wave[:-AHEAD].tolist(), wave[AHEAD:].tolist(), strict=True)]


def main(path: Path) -> None:
    live, frozen, errors = OnlineRNNRegressor(seed=SEED), None, {"live": [], "frozen": [], "persistence": []}
    samples = stream()
    for t, (x, y) in enumerate(samples):
        if t == CHANGES[0]:
            frozen = copy.deepcopy(live)
        if t >= AHEAD:  # a target is known when its time has come
            live.learn_one(*samples[t - AHEAD])
        errors["live"].append(abs(live.predict_one(x) - y))
        errors["frozen"].append(errors["live"][-1] if frozen is None else abs(frozen.predict_one(x) - y))
        errors["persistence"].append(abs(x["reading"] - y))
    draw({name: np.array(values) for name, values in errors.items()}, path)
    for name, values in errors.items():
        parts = np.split(np.array(values), CHANGES)
        print(
            f"{name}: mean error in the last 200 samples of each part",
            [round(float(p[-200:].mean()), 3) for p in parts],
        )


def draw(errors, path):
    smooth = lambda a: np.convolve(a, np.ones(50) / 50, "valid")  # noqa: E731
    figure, axis = style.subplots(figsize=(7.5, 3.2))
    looks = {
        "persistence": (style.OTHERS, "persistence"),
        "frozen": (style.THEIRS, "stopped learning"),
        "live": (style.OURS, "learns on"),
    }
    for name, (colour, label) in looks.items():
        axis.plot(np.arange(49, SAMPLES), smooth(errors[name]), color=colour, label=label, linewidth=1.4)
    for change in CHANGES:
        axis.axvline(change, color="black", linewidth=0.8, linestyle=":")
    axis.text(CHANGES[0] + 10, axis.get_ylim()[1] * 0.93, "the rule changes", fontsize=8)
    axis.set(xlabel="sample", ylabel="error, mean of 50", xlim=(0, SAMPLES), ylim=(0, None))
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    style.finished(figure).savefig(path, dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "drifting_stream.png"))
