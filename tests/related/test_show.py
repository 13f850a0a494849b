"""The table and the pictures of what the four have measured, from the committed results."""

import matplotlib.pyplot as plt
import pytest
import show


def test_every_method_has_three_seeds_and_a_time():
    rows = list(show.rows())
    assert {row[0] for row in rows} >= {"sparse attentive backtracking", "recurrent backpropagation", "P-TNCN"}
    assert all(len(seeds) == 3 and ms > 0 for *_, seeds, ms, _ in rows)


@pytest.mark.parametrize("picture", show.PICTURES)
def test_every_picture_shows_all_that_was_measured(picture):
    (axes,) = picture().axes
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 1]
    assert len(lines) >= 4
    plt.close("all")
