"""How all pictures look: one font, colours for all eyes and for paper. Matplotlib is imported when something is drawn.

The first seven colours are Okabe and Ito's, told apart by people who see fewer of them; four are Tol's. Lines also differ in
their dashes and marks, so that a grey print is read too.
"""

from contextlib import AbstractContextManager
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
COLOURS += ("#882255", "#999933", "#332288", "#777777")
OURS, THEIRS, OTHERS = "#0072B2", "#D55E00", "#9AA5B1"  # the one that it is about, its rival, and all else

_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h", "<", ">")
_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib, so that a picture is the same everywhere
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.color": "#888888",
    "figure.facecolor": "white",
    "lines.linewidth": 1.6,
}


def line_style(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line of a picture."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i % len(_DASHES)]}


def marker(i: int) -> str:
    return _MARKERS[i % len(_MARKERS)]


def subplots(*shape: int, **how: Any) -> tuple[Any, Any]:
    """A figure and its axes in this style; what the caller has set in Matplotlib stays as it is."""
    from matplotlib import pyplot as plt

    with in_style():
        return plt.subplots(*shape, **{"layout": "constrained", **how})


def in_style() -> AbstractContextManager[Any]:
    """While all figures that Matplotlib makes are in this style."""
    import matplotlib
    from cycler import cycler

    settings: Any = {**_SETTINGS, "axes.prop_cycle": cycler(color=COLOURS)}
    return matplotlib.rc_context(settings)


def finished(figure: Any) -> Any:
    """With legends as they should be, which are made after the figure."""
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        if legend is not None:
            legend.set_frame_on(False)
    return figure
