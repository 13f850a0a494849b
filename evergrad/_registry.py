"""One table of all that can be chosen by name: cells, estimators, readouts, optimisers and tasks, with their parameters.

The command line, the planner, `evergrad.river`, files, the lab, the docs and the tests read it. Nothing here imports JAX, so
that `--help` is quick: an entry names its class, which is imported when somebody wants it.

A package of yours adds to it by an entry point of the group `evergrad`, which names a module that calls `evergrad.extend.register`:

    [project.entry-points.evergrad]
    mine = "my_package.entries"
"""

import dataclasses
import importlib
import importlib.metadata
import warnings
from typing import Any

_OWN = "the estimator's own"


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A number or a word that somebody chooses: what it means, and which values it can have."""

    kind: type
    text: str  # begins a help text, which goes on with who has it
    at_least: int | float | None = None
    above: int | float | None = None
    choices: tuple[str, ...] = ()
    otherwise: str = _OWN  # in words, what there is where nothing is said


@dataclasses.dataclass(frozen=True)
class Entry:
    """A class, as `module:name`, and the parameters of its constructor that can be chosen by name."""

    target: str
    parameters: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # what is worth knowing of it before it is imported
    defaults: tuple[Any, ...] = ()  # of the parameters, as the constructor has them

    @property
    def name(self) -> str:
        return self.target.partition(":")[2]

    def load(self) -> Any:
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)


PARAMETERS: dict[str, Parameter] = {
    "rank": Parameter(int, "Terms that are kept", at_least=1),
    "window": Parameter(int, "Newest steps kept exactly", at_least=0),
    "mix": Parameter(str, "How terms are reduced", choices=("signs", "sampling", "truncate")),
    "scales": Parameter(str, "What the random signs are scaled by", choices=("rows", "one")),
    "scope": Parameter(str, "What is kept within a unit", choices=("unit", "direct")),
    "copies": Parameter(int, "Estimates that are averaged", at_least=1),
    "diagonal_rank": Parameter(int, "Rank that D is reduced to", at_least=1, otherwise="not reduced"),
    "horizon": Parameter(int, "Steps a gradient reaches back", at_least=1),
    "mean": Parameter(int, "Steps a gradient reaches back in the mean", at_least=2),
    "cap": Parameter(int, "Steps a gradient reaches back at most", at_least=1),
    "order": Parameter(int, "Hops between units that are followed", at_least=1),
    "stride": Parameter(int, "Steps from update to update", at_least=1, otherwise="the horizon"),
    "dtype": Parameter(str, "What the influence is kept in", choices=("bfloat16",), otherwise="the weights' own type"),
}

_UNIT_LOCAL = ("unit-local",)  # units do not see each other
CELLS: dict[str, Entry] = {
    "rnn": Entry("evergrad:RNN", tags=("ungated",)),
    "leaky": Entry("evergrad:Leaky", tags=("ungated",)),
    "rhn": Entry("evergrad:RHN"),
    "lstm": Entry("evergrad:LSTM"),
    "gru": Entry("evergrad:GRU"),
    "lru": Entry("evergrad:LRU", tags=_UNIT_LOCAL),
    "rtu": Entry("evergrad:RTU", tags=_UNIT_LOCAL),
    "elstm": Entry("evergrad:ELSTM", tags=_UNIT_LOCAL),
    "mingru": Entry("evergrad:MinGRU", tags=_UNIT_LOCAL),
    "minlstm": Entry("evergrad:MinLSTM", tags=_UNIT_LOCAL),
    "rglru": Entry("evergrad:RGLRU", tags=_UNIT_LOCAL),
    "indrnn": Entry("evergrad:IndRNN", tags=_UNIT_LOCAL),
    "columnar": Entry("evergrad:ColumnarLSTM", tags=_UNIT_LOCAL),
}

# in the planner's order: what comes first is wanted most, if it fits
ESTIMATORS: dict[str, Entry] = {
    "rtrl": Entry("evergrad:RTRL", ("window", "dtype"), defaults=(0, None)),
    "ok": Entry("evergrad:OK", ("rank", "window", "mix", "dtype"), defaults=(8, 16, "sampling", None)),
    "ktp": Entry("evergrad:KTP", ("rank", "window"), defaults=(16, 0)),
    "kf": Entry("evergrad:KF", ("copies", "diagonal_rank", "window", "dtype"), defaults=(1, None, 0, None)),
    "uoro": Entry("evergrad:UORO", ("window", "scales"), defaults=(0, "rows")),
    "snap1": Entry("evergrad:SnAp1", ("window",), defaults=(0,)),
    "eprop": Entry("evergrad:EProp", ("window",), defaults=(0,)),
    "rflo": Entry("evergrad:RFLO", ("window",), defaults=(0,)),
    "fixed": Entry("evergrad:Fixed"),
    "local": Entry("evergrad:Local", ("scope", "window"), defaults=("unit", 0)),
    "tbptt": Entry("evergrad:TBPTT", ("horizon", "stride"), defaults=(25, None)),
    "reverse-kf": Entry("evergrad:ReverseKF", ("copies", "window"), defaults=(1, 0)),
    "snap": Entry("evergrad:SnAp", ("order", "window"), defaults=(2, 0)),
    "artbp": Entry("evergrad:ARTBP", ("mean", "cap"), defaults=(16, 256)),
    "dni": Entry("evergrad:DNI", ("window",), defaults=(8,)),
    "kernl": Entry("evergrad:KeRNL", ("window",), defaults=(0,)),
}

# of (units, outputs), by what they predict
READOUTS: dict[str, Entry] = {
    "softmax": Entry("evergrad:Softmax"),
    "linear": Entry("evergrad:Linear"),
    "rls": Entry("evergrad:RLS"),
}

OPTIMISERS: dict[str, Entry] = {
    "adam": Entry("optax:adam"),
    "adamw": Entry("optax:adamw"),
    "sgd": Entry("optax:sgd"),
    "momentum": Entry("evergrad._training.build:momentum"),
    "rmsprop": Entry("optax:rmsprop"),
}

_KNOWN = ("known",)  # the best prediction is
TASKS: dict[str, Entry] = {
    "copy": Entry("evergrad._training.tasks:CopyTask"),
    "cue": Entry("evergrad._training.tasks:CueTask"),
    "text": Entry("evergrad._training.tasks:TextTask"),
    "series": Entry("evergrad._training.tasks:SeriesTask"),
    "add": Entry("evergrad._training.tasks:KnownTask", tags=_KNOWN),
    "trace": Entry("evergrad._training.tasks:KnownTask", tags=_KNOWN),
    "rotation": Entry("evergrad._training.tasks:KnownTask", tags=_KNOWN),
    "anbn": Entry("evergrad._training.tasks:KnownTask", tags=_KNOWN),
    "chain": Entry("evergrad._training.tasks:KnownTask", tags=_KNOWN),
    "chaos": Entry("evergrad._training.tasks:KnownTask", tags=_KNOWN),
}

_TABLES = {"cell": CELLS, "estimator": ESTIMATORS, "readout": READOUTS, "optimiser": OPTIMISERS}


def add(kind: str, name: str, target: str, **parameters: Parameter) -> None:
    """One entry more: `kind` is cell, estimator, readout or optimiser, `target` its class as `module:name`.

    A parameter that others have too may be given by their `PARAMETERS[name]`. A name that is taken is refused.
    """
    if kind not in _TABLES:
        raise ValueError(f'register("{kind}", …): choose one of {", ".join(_TABLES)}.')
    if name in _TABLES[kind]:
        raise ValueError(f'register("{kind}", "{name}", …): there is {_TABLES[kind][name].target} of that name.')
    for parameter, about in parameters.items():
        if PARAMETERS.setdefault(parameter, about) != about:
            raise ValueError(
                f'register("{kind}", "{name}", …): the parameter {parameter} means something else already '
                f"({PARAMETERS[parameter].text}): give it another name."
            )
    _TABLES[kind][name] = Entry(target, tuple(parameters))


def tagged(table: dict[str, Entry], tag: str) -> tuple[str, ...]:
    """The names of what has a tag."""
    return tuple(name for name, entry in table.items() if tag in entry.tags)


def having(parameter: str) -> list[str]:
    """The estimators that have a parameter."""
    return [name for name, entry in ESTIMATORS.items() if parameter in entry.parameters]


def defaults_in_words(parameter: str) -> str:
    """What the estimators have where nothing is said of a parameter: 8 (ok), 16 (ktp)."""
    found: dict[Any, list[str]] = {}
    for name in having(parameter):
        entry = ESTIMATORS[name]
        value = dict(zip(entry.parameters, entry.defaults, strict=False)).get(parameter)
        found.setdefault(PARAMETERS[parameter].otherwise if value is None else value, []).append(name)
    most = max(found, key=lambda value: len(found[value]), default=None)
    if len(found) <= 1:
        return str(most)
    listed = [f"{value} ({', '.join(names)})" for value, names in found.items() if value != most or len(names) < 3]
    return "; ".join(listed + ([f"else {most}"] if len(found[most]) >= 3 else []))


def name_of(table: dict[str, Entry], kind: type) -> str | None:
    """The name under which a class is known; None if it is not."""
    return next((name for name, entry in table.items() if entry.name == kind.__name__ and entry.load() is kind), None)


def _load_others() -> None:
    """What other packages register. One that cannot be loaded is told of, and is no reason to do nothing."""
    for point in importlib.metadata.entry_points(group="evergrad"):
        try:
            point.load()
        except Exception as error:
            warnings.warn(f"the entry point {point.name} = {point.value} cannot be loaded: {error!r}", stacklevel=2)


_load_others()
