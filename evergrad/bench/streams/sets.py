"""The data sets, each as one stream of (features, target)."""

import csv
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evergrad._core.checks import refuse_unless


@dataclass(frozen=True)
class Stream:
    """Features and targets in order. A target is known `delay` samples after its features (0: at once)."""

    name: str
    features: list[dict[Any, Any]]
    targets: list[Any]
    delay: int
    classes: bool
    own: str | None  # the feature that the target is a later value of

    @property
    def first(self) -> int:
        """The predictions before that are not judged: no target is known yet, and the level of y is anybody's guess."""
        return max(self.delay, 1)

    def beginning(self, rows: int | None) -> "Stream":
        """The first so many samples; all for None."""
        return replace(self, features=self.features[:rows], targets=self.targets[:rows])


def water_flow() -> Stream:
    from river import datasets

    return _ahead("WaterFlow", [{"flow": y} for _, y in datasets.WaterFlow()], "flow", 1)


def airline() -> Stream:
    from river import datasets

    return _ahead(
        "AirlinePassengers", [{"passengers": float(y)} for _, y in datasets.AirlinePassengers()], "passengers", 1
    )


def trump() -> Stream:
    from river import datasets

    rows = list(datasets.TrumpApproval())
    return Stream("TrumpApproval", [x for x, _ in rows], [y for _, y in rows], 0, False, None)


def respiratory(data: Path) -> Stream:
    """z of one chest marker, half a second (5 samples) ahead; a target is known when its time has come."""
    pattern = data / "respiratory" / "markers" / "201205181211-LAC-*.csv"
    found = sorted(pattern.parent.glob(pattern.name))
    path = found[0] if found else pattern

    def number(text):
        return float(text.replace(",", "."))

    rows = [{"z": number(row["z"])} for row in _rows(path, delimiter=";")]
    return _ahead("respiratory", rows, "z", 5)


def transformer(data: Path) -> Stream:
    rows = [{k: float(v) for k, v in row.items() if k != "date"} for row in _rows(data / "ett" / "ETTh1.csv")]
    return _ahead("ETTh1", rows[:4001], "OT", 1)


def exchange(data: Path) -> Stream:
    path = data / "exchange" / "exchange_rate.txt.gz"
    _check_there(path)
    with gzip.open(path, "rt") as file:
        rows = [{f"country {i}": float(v) for i, v in enumerate(line)} for line in csv.reader(file)]
    return _ahead("exchange", rows[:4001], "country 0", 1)


def market(data: Path, own: str) -> Stream:
    """Price or demand of New South Wales, half an hour ahead."""
    rows = [{k: float(v) for k, v in row.items() if k != "class"} for row in _rows(data / "elec2" / "elec.csv")]
    return _ahead(own.removeprefix("nsw"), rows[:4001], own, 1)


def price(data: Path) -> Stream:
    return market(data, "nswprice")


def demand(data: Path) -> Stream:
    return market(data, "nswdemand")


def phishing() -> Stream:
    from river import datasets

    return _labelled("Phishing", datasets.Phishing())


def bananas() -> Stream:
    from river import datasets

    return _labelled("Bananas", datasets.Bananas())


def segments() -> Stream:
    from river import datasets

    return _labelled("ImageSegments", datasets.ImageSegments())


def sea() -> Stream:
    """Two of three features decide by their sum; nothing of it has to do with time."""
    from river.datasets import synth

    return _labelled("SEA", synth.SEA(variant=0, seed=1).take(5000))


def elec2(data: Path) -> Stream:
    rows = [{k: float(v) for k, v in row.items()} for row in _rows(data / "elec2" / "elec.csv")][:20000]
    targets = [int(row.pop("class")) for row in rows]
    return Stream("Elec2", rows, targets, 0, True, None)


BUNDLED: dict[str, Callable[[], Stream]] = {
    "WaterFlow": water_flow,
    "AirlinePassengers": airline,
    "TrumpApproval": trump,
    "Phishing": phishing,
    "Bananas": bananas,
    "ImageSegments": segments,
    "SEA": sea,
}
SHARED: dict[str, Callable[[Path], Stream]] = {
    "respiratory": respiratory,
    "ETTh1": transformer,
    "exchange": exchange,
    "price": price,
    "demand": demand,
    "Elec2": elec2,
}


NAMES = [*BUNDLED, *SHARED]


def streams(data: Path | None, only: list[str]) -> Iterator[Stream]:
    """Those that are bundled with river, and those below `data` if it is given."""
    unknown = [name for name in only if name not in NAMES]
    refuse_unless(not unknown, f"there is no data set {unknown}: choose among {', '.join(NAMES)}.")
    refuse_unless(data is None or data.is_dir(), f"--data {data} is not a folder.")
    makers = {
        **BUNDLED,
        **({} if data is None else {name: lambda make=make: make(data) for name, make in SHARED.items()}),
    }
    for name in only or makers:
        refuse_unless(name in makers, f"{name} is not bundled with river: say where it is with --data.")
        yield makers[name]()


def _labelled(name, rows):
    rows = list(rows)
    return Stream(name, [x for x, _ in rows], [y for _, y in rows], 0, True, None)


def _ahead(name, rows, own, steps):
    targets = [row[own] for row in rows[steps:]]
    return Stream(name, rows[:-steps], targets, steps if steps > 1 else 0, False, own)


def _rows(path, delimiter=","):
    _check_there(path)
    with path.open(newline="") as file:
        yield from csv.DictReader(file, delimiter=delimiter)


def _check_there(path):
    refuse_unless(path.is_file(), f"{path} is missing: --data names the folder that has it.")
