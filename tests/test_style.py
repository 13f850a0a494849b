"""One style for all pictures: lines can be told apart by all eyes and on paper, and nobody's own settings are touched."""

import itertools
import re

import matplotlib
import matplotlib.colors
import numpy as np
import pytest

from evergrad import _style as style
from tests.training_helpers import ROOT

# what is left of linear RGB: Machado, Oliveira and Fernandes (2009), severity 1
EYES = {
    "all colours": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
NOTICED = 2.3  # a difference in CIELAB that is just seen side by side


def lab(colour, eye):
    """CIELAB of a colour as somebody sees it."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    xyz = TO_XYZ @ np.clip(np.array(EYES[eye]) @ linear, 0, 1) / TO_XYZ.sum(1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colours, eye):
    return min(np.linalg.norm(lab(a, eye) - lab(b, eye)) for a, b in itertools.combinations(colours, 2))


@pytest.mark.parametrize("eye", EYES)
def test_the_first_lines_and_the_bars_differ_in_colour_for_all_eyes(eye):
    assert closest(style.COLOURS[:7], eye) > 3 * NOTICED
    assert closest((style.OURS, style.THEIRS, style.OTHERS), eye) > 8 * NOTICED


def test_matplotlibs_own_colours_would_not_pass():
    """Its orange and its olive, green and red are nearly the same to some."""
    own = [matplotlib.colors.to_hex(f"C{i}") for i in range(10)]
    assert closest(own, "all colours") > 3 * NOTICED
    assert min(closest(own, eye) for eye in EYES) < 3 * NOTICED


def test_without_any_colour_dashes_and_marks_tell_lines_apart():
    """No two of ten lines have the same dashes and nearly the same grey, nor the same mark."""
    grey = [lab(colour, "all colours")[0] for colour in style.COLOURS]
    for i, j in itertools.combinations(range(10), 2):
        same = style.line_style(i)["linestyle"] == style.line_style(j)["linestyle"]
        assert not same or abs(grey[i] - grey[j]) > 2 * NOTICED or style.marker(i) != style.marker(j)
    assert len({style.marker(i) for i in range(11)}) == 11


def test_what_others_have_set_stays():
    before = dict(matplotlib.rcParams)
    figure, axes = style.subplots(figsize=(2, 2))
    axes.plot([0, 1], label="a")
    figure.legend()
    assert dict(matplotlib.rcParams) == before
    assert not axes.spines["top"].get_visible()
    assert not style.finished(figure).legends[0].get_frame_on()
    matplotlib.pyplot.close(figure)


def test_no_picture_has_colours_or_figures_of_its_own():
    """Pages in HTML have colours too, of text."""
    for path in (*(ROOT / "evergrad").rglob("*.py"), *(ROOT / "examples").rglob("*.py")):
        if path.name not in ("_style.py", "page.py"):
            assert not re.search(r"plt\.subplots\(|[\"']#[0-9a-fA-F]{6}[\"']", path.read_text()), path
