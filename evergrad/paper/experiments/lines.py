"""Every line of every figure that is trained: network, estimator, steps and seeds at each budget. One table.

A line is trained at the released runs' rate to `sizes`, and at the best of the paper's four rates to `best`. Which rate that is
stands nowhere here: each is tried for `search` steps with one seed, and the runs decide.
"""

import dataclasses
from typing import Any, cast

from evergrad.paper.setup import COPY, PTB, exact, kf, ktp, ok, ours, rolling, tbptt

Size = tuple[int, int]  # steps, seeds
Sizes = dict[str, Size]


@dataclasses.dataclass(frozen=True)
class Row:
    """`rate_of` names the row (figure, label) whose search decides the rate, where this one has none; `turn` is its place
    in the queue of the long budget. A budget that is missing leaves the line out."""

    label: str
    estimator: dict[str, Any]
    sizes: Sizes = dataclasses.field(default_factory=dict)
    best: Sizes = dataclasses.field(default_factory=dict)
    search: dict[str, int] = dataclasses.field(default_factory=dict)
    rate_of: tuple[str, str] | None = None
    turn: int = 0
    network: dict[str, Any] = dataclasses.field(default_factory=dict)  # what differs from the figure's


@dataclasses.dataclass(frozen=True)
class Figure:
    """The paper's network and length of training, and the lines."""

    network: dict[str, Any]
    steps: int
    rows: tuple[Row, ...]

    def row(self, label: str) -> Row:
        return next(row for row in self.rows if row.label == label)

    def settings(self, row: Row) -> dict[str, Any]:
        """What makes a run one of this row's, whatever its rate and seed."""
        return self.network | row.network | row.estimator


def _sizes(quick: Size | None, desk: Size | None, long: Size | None, full: Size) -> Sizes:
    made = {"quick": quick, "desk": desk, "long": long or desk, "full": full}
    return {budget: size for budget, size in made.items() if size is not None}


def _copy(quick: int | None, desk: Size | None, long: Size | None = None) -> Sizes:
    return _sizes(cast(Size | None, quick and (quick, 1)), desk, long, (2_000_000, 5))


def _text(quick: int | None, desk: Size | None, long: Size | None = None) -> Sizes:
    return _sizes(cast(Size | None, quick and (quick, 1)), desk, long, (1_000_000, 5))


COPY_SEARCH = {"desk": 20_000, "long": 40_000, "full": 200_000}
TEXT_SEARCH = {"desk": 4_000, "long": 20_000, "full": 100_000}
OK_16, OURS_16, KF_16 = "16-OK", "16-OK, window 16 (ours)", "16-KF-RTRL-AVG"
OK_8, OURS_8, KF_8 = "8-OK", "8-OK, window 16 (ours)", "8-KF-RTRL-AVG"
TBPTT_5, TBPTT_25, TBPTT_50, TBPTT_80 = "TBPTT-5", "TBPTT-25", "TBPTT-50", "TBPTT-80"
ROLLING, EXACT = "TBPTT-50, stride 1", "exact RTRL"
KTP, KTP_1, KTP_16, APPROX, KF = (
    "KTP-16",
    "KTP-16, window 1",
    "KTP-16, window 16 (ours)",
    "KF-RTRL-16-APPROX",
    "KF-RTRL",
)
U16, B16, U1, B1 = "16-U-OK", "16-B-OK", "1-U-OK, 256 streams", "1-B-OK, 256 streams"
LARGE_PTB, LARGE_COPY = "PTB, 512 units, by TBPTT-25", "copy, 512 units, by TBPTT-50"
_FULL_COPY = {"full": 200_000}
_FULL_TEXT = {"full": 100_000}
_MANY = {"batch": 256}

FIGURES = {
    "fig1": Figure(
        COPY,
        2_000_000,
        (
            Row(
                OURS_16,
                ours(16),
                _copy(4_000, (200_000, 3)),
                _copy(None, None, (2_000_000, 2)),
                {"long": 100_000, "full": 200_000},
                turn=7,
            ),
            Row(OK_16, ok(16), _copy(4_000, (20_000, 1), (100_000, 1)), _copy(None, None), _FULL_COPY, turn=4),
            Row(KF_16, kf(16), _copy(4_000, (20_000, 1), (100_000, 1)), _copy(None, None), _FULL_COPY, turn=10),
            Row(
                TBPTT_50,
                tbptt(50),
                _copy(4_000, (200_000, 3)),
                _copy(None, (200_000, 3), (2_000_000, 3)),
                COPY_SEARCH,
                turn=1,
            ),
            Row(
                TBPTT_80,
                tbptt(80),
                _copy(4_000, (200_000, 3)),
                _copy(None, (200_000, 3), (2_000_000, 3)),
                COPY_SEARCH,
                turn=1,
            ),
            Row(
                ROLLING,
                rolling(50),
                {},
                _copy(None, None, (500_000, 1)),
                {"long": 40_000, "full": 200_000},
                turn=1,
            ),
            Row(EXACT, exact(128), {}, {"long": (100_000, 2)}, rate_of=("fig1", OURS_16), turn=12),
        ),
    ),
    "fig2": Figure(
        PTB,
        1_000_000,
        (
            Row(
                OURS_8,
                ours(8),
                _text(1_000, (49_000, 1), (199_000, 1)),
                _text(None, (30_000, 1), (49_000, 1)),
                {"desk": 4_000, "long": 4_000, "full": 100_000},
                turn=11,
            ),
            Row(OK_8, ok(8), _text(1_000, (2_000, 1)), _text(None, None), _FULL_TEXT),
            Row(KF_8, kf(8), _text(1_000, (2_000, 1)), _text(None, None), _FULL_TEXT),
            Row(
                TBPTT_5,
                tbptt(5),
                _text(1_000, (49_000, 2)),
                _text(None, (49_000, 1), (1_000_000, 1)),
                TEXT_SEARCH,
                turn=3,
            ),
            Row(
                TBPTT_25,
                tbptt(25),
                _text(1_000, (49_000, 2)),
                _text(None, (49_000, 1), (1_000_000, 1)),
                TEXT_SEARCH,
                turn=3,
            ),
        ),
    ),
    "figA1": Figure(
        PTB | {"batch": 64},
        1_000_000,
        (
            Row(
                OURS_8,
                ours(8),
                {"quick": (1_000, 1)},
                _text(None, (4_000, 1)),
                {"desk": 4_000, "long": 4_000, "full": 100_000},
                turn=20,
            ),
            Row(OK_8, ok(8), {}, _text(None, None), _FULL_TEXT),
            Row(
                TBPTT_5,
                tbptt(5),
                {"quick": (1_000, 1)},
                _text(None, (4_000, 1), (1_000_000, 1)),
                TEXT_SEARCH,
                turn=6,
            ),
            Row(
                TBPTT_25,
                tbptt(25),
                {"quick": (1_000, 1)},
                _text(None, (4_000, 1), (1_000_000, 1)),
                TEXT_SEARCH,
                turn=6,
            ),
        ),
    ),
    "noise": Figure(
        {},
        1_000_000,
        (
            Row(
                LARGE_PTB,
                tbptt(25),
                {"quick": (200, 1), "desk": (20_000, 1), "full": (1_000_000, 1)},
                {"long": (500_000, 1)},
                rate_of=("fig2", TBPTT_25),
                turn=5,
                network=PTB | {"units": 512},
            ),
            Row(
                LARGE_COPY,
                tbptt(50),
                {"quick": (200, 1), "desk": (60_000, 1), "full": (2_000_000, 1)},
                {"long": (200_000, 1)},
                rate_of=("fig1", TBPTT_50),
                turn=5,
                network=COPY | {"units": 512},
            ),
        ),
    ),
    "fig4": Figure(
        COPY | _MANY,
        2_000_000,
        (
            Row(
                KTP,
                ktp(16),
                _copy(3_000, (20_000, 1), (100_000, 1)),
                _copy(None, (10_000, 1), (50_000, 1)),
                {"desk": 6_000, "long": 6_000, "full": 200_000},
                turn=9,
            ),
            Row(KTP_1, ktp(16, window=1), {"long": (20_000, 1)}, turn=9),
            Row(
                KTP_16,
                ktp(16, window=16),
                _copy(3_000, (10_000, 1)),
                _copy(None, None),
                _FULL_COPY,
            ),
            Row(
                APPROX,
                kf(diagonal_rank=16),
                _copy(3_000, (4_000, 1), (30_000, 1)),
                _copy(None, None),
                _FULL_COPY,
                turn=10,
            ),
            Row(KF, kf(), _copy(3_000, (4_000, 1), (30_000, 1)), _copy(None, None), _FULL_COPY, turn=10),
            Row(
                TBPTT_25,
                tbptt(25),
                _copy(3_000, (50_000, 1)),
                _copy(None, (50_000, 1), (2_000_000, 1)),
                {"desk": 6_000, "long": 20_000, "full": 200_000},
                turn=8,
            ),
            Row(
                TBPTT_50,
                tbptt(50),
                _copy(3_000, (50_000, 1)),
                _copy(None, (50_000, 1), (2_000_000, 1)),
                {"desk": 6_000, "long": 20_000, "full": 200_000},
                turn=8,
            ),
        ),
    ),
    "figA8": Figure(
        COPY,
        2_000_000,
        (
            Row(U16, ok(16), _copy(3_000, (10_000, 1), (100_000, 1)), _copy(None, None), _FULL_COPY, turn=4),
            Row(
                B16,
                ok(16, mix="truncate"),
                _copy(3_000, (10_000, 1), (50_000, 1)),
                _copy(None, None),
                _FULL_COPY,
                turn=4,
            ),
            Row(U1, ok(1), _copy(3_000, (3_000, 1)), _copy(None, None), _FULL_COPY, network=_MANY),
            Row(B1, ok(1, mix="truncate"), _copy(3_000, (3_000, 1)), _copy(None, None), _FULL_COPY, network=_MANY),
        ),
    ),
}
