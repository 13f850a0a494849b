"""Noise in a few numbers, as a table and as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from evergrad._training.plots import line_style, save, subplots
from evergrad.lab.noise import Noise

POINTS = 100


def summarise(noise: Noise, *, smallest: float = 0.0) -> dict[str, Any]:
    """Means over the steps whose exact gradient is no smaller than `smallest`, and the cosine along the steps."""
    kept = noise.large(smallest)
    cosines = noise.cosines()
    shown = cosines[:, kept] if kept.any() else np.full((1, 1), np.nan)
    return {
        "cosine": float(shown.mean()),
        "cosine_spread": float(shown.mean(axis=1).std()),
        "relative_error": noise.relative_error(),
        "bias_z": noise.bias_z(),
        "repetitions": len(cosines),
        "steps_kept": int(kept.sum()),
        "curve": curve(cosines, kept),
    }


def curve(cosines: np.ndarray, kept: np.ndarray) -> dict[str, list[float]]:
    """Mean and standard deviation over repetitions, both averaged over stretches of steps."""
    steps = len(kept)
    length = max(1, -(-steps // POINTS))
    mean, spread = cosines.mean(axis=0), cosines.std(axis=0)
    found: dict[str, list[float]] = {"step": [], "cosine": [], "spread": []}
    for first in range(0, steps, length):
        here = first + np.flatnonzero(kept[first : first + length])
        if len(here):
            for name, value in zip(found, (here.mean() + 1, mean[here].mean(), spread[here].mean()), strict=True):
                found[name].append(round(float(value), 5))
    return found


def table(title: str, found: Mapping[str, dict[str, Any]]) -> Table:
    made = Table(title=title)
    columns = ("estimator", "cosine", "error²/g²", "bias z", "injected a step", "own bound", "multiply-adds")
    for name in columns:
        made.add_column(name, justify="left" if name == "estimator" else "right")
    for name, row in found.items():
        z = row["bias_z"]
        numbers = [f"{row['cosine']:.4f}", f"{row['relative_error']:.3g}", "–" if z is None else f"{z:.1f}"]
        work = "–" if row["multiply_adds"] is None else f"{row['multiply_adds']:.3g}"
        made.add_row(name, *numbers, *injected_in_words(row), work)
    return made


def injected_in_words(row: dict[str, Any]) -> tuple[str, str]:
    """The injected noise with its standard error, and its bound with the verdict, if there is one."""
    if row["injected"] is None:
        return "–", "–"
    error, verdict = row.get("injected_error"), row.get("verdict")  # results of before had neither
    measured = f"{row['injected']:.2g}" + ("" if error is None else f" ± {error:.1g}")
    bound = "–" if row["bound"] is None else f"{row['bound']:.2g}" + ("" if verdict is None else f", {verdict}")
    return measured, bound


def draw_cosines(axes: Any, found: Mapping[str, dict[str, Any]]) -> None:
    """Cosine along the steps, mean and band of one standard deviation over repetitions."""
    for i, (label, row) in enumerate(found.items()):
        step, cosine, spread = (np.array(row["curve"][name]) for name in ("step", "cosine", "spread"))
        style = line_style(i)
        axes.plot(step, cosine, label=label, linewidth=1.5, **style)
        low, high = np.maximum(cosine - spread, -1), np.minimum(cosine + spread, 1)
        axes.fill_between(step, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_xlabel("steps with frozen weights")
    axes.set_ylabel("cosine of estimate and exact gradient")


def plot(title: str, found: Mapping[str, dict[str, Any]], path: Path) -> None:
    figure, axes = subplots(figsize=(8, 4.8))
    draw_cosines(axes, found)
    axes.set_title(title, fontsize=10)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    save(figure, path)


def plot_reach(title: str, found: Any, path: Path) -> None:
    """What is missing of the gradient's square beyond every horizon, on two logarithmic axes."""
    from matplotlib import ticker

    lags = found.at
    missing = np.maximum(1 - found.shares, 1e-6)
    figure, axes = subplots(figsize=(8, 4.8))
    style = line_style(0)
    axes.loglog(lags, missing, linewidth=1.8, **style)
    low, high = np.maximum(missing - found.error, 1e-6), missing + found.error
    axes.fill_between(lags, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.axhline(0.01, color="0.5", linewidth=1, linestyle=":")
    far = found.horizon()
    if far is not None:
        axes.axvline(far, color="0.5", linewidth=1, linestyle=":")
        beside = {"xytext": (-6, 6), "textcoords": "offset points", "ha": "right"}
        axes.annotate(f"99 % within {far} steps", (far, 2e-6), fontsize=9, **beside)
    for each in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        each(ticker.LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    axes.set_xlabel("horizon (steps back)")
    axes.set_ylabel("share of the gradient's square beyond it")
    axes.set_title(title, fontsize=9, wrap=True)
    save(figure, path)
