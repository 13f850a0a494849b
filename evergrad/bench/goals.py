"""The goals of speed, each measured as a ratio in one run."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator

import jax

import evergrad as eg
from evergrad.bench import bare
from evergrad.bench.authors import against_authors
from evergrad.bench.row import Row
from evergrad.bench.settings import COPY, PTB, Setting
from evergrad.bench.starts import starts
from evergrad.bench.timing import forward, milliseconds, training


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much to measure, and how long; a round is short, and its median over rounds is what counts."""

    rounds: int
    steps: int  # of a round, at the smaller setting
    settings: tuple[Setting, ...]
    units: tuple[int, ...]  # of UORO


FULL = Effort(rounds=9, steps=64, settings=(COPY, PTB), units=(128, 256, 512))
QUICK = Effort(rounds=3, steps=32, settings=(COPY,), units=(128, 256))


PARTS = ("ok", "ktp", "rolling", "compile", "uoro", "networks", "stack", "unit-local", "short")


def goals(effort: Effort, say: Callable[[str], None], only: Collection[str] = PARTS) -> Iterator[Row]:
    """The rows of some parts, as they are measured; `say` is told what is being measured."""
    for part, measured in _parts(effort, say):
        if part in only:
            yield from measured


def _parts(effort, say):
    """Nothing is measured before its rows are asked for."""
    for setting in effort.settings:
        yield "ok", _ok(setting, effort, say)
        yield "ktp", _cheap(setting, effort, say)
        yield "rolling", _rolling(setting, effort, say)
        yield "compile", _compile(setting, say)
    for units in effort.units:
        yield "uoro", _uoro(dataclasses.replace(PTB, units=units), effort, say)
    yield "networks", _networks(effort, say)
    yield "stack", _stack(effort, say)
    yield "unit-local", _unit_local(effort, say)
    yield "short", _short_steps(effort, say)


def _ok(setting, effort, say):
    say(f"OK at {setting.name}")
    steps = effort.steps if setting is COPY else effort.steps // 2
    bare_forms = {"bare products of window 0": bare.step_products(setting, steps // 8)}
    bare_forms |= {"bare products of window 16": bare.window_products(setting, 1)}
    cases = {
        "OK(window=0)": training(setting, setting.ok(window=0), steps // 4),
        "OK(window=16)": training(setting, setting.ok(), steps),
    }
    cases |= {f"{what}, {form}": case for what, forms in bare_forms.items() for form, case in forms.items()}
    cases |= {f"one read, window {window}": bare.one_read(setting, window, steps) for window in (0, setting.window)}
    narrow = eg.OK(rank=setting.rank, window=setting.window, dtype="bfloat16")
    cases[repr(narrow)] = training(setting, narrow, steps)
    exact = eg.RTRL(window=setting.units)
    if setting is COPY:
        cases[repr(exact)] = training(setting, exact, setting.units)
    ms = milliseconds(cases, effort.rounds)
    reads = (each for name, each in ms.items() if name.startswith("one read"))
    products = (min(v for name, v in ms.items() if name.startswith(what)) for what in bare_forms)
    floor_0, floor_16 = (sum(parts) for parts in zip(products, reads, strict=True))
    whole_0, whole_16 = ms["OK(window=0)"], ms["OK(window=16)"]
    yield Row("1", f"{setting.name}: OK(window=0) / its floor", whole_0 / floor_0, 1.3, milliseconds=ms)
    yield Row("2", f"{setting.name}: OK(window=16) / its floor", whole_16 / floor_16, 1.5)
    yield Row("2", f"{setting.name}: OK(window=0) / OK(window=16)", whole_0 / whole_16, 5.0, at_least=True)
    what = f"{setting.name}: OK(window=16) / the same kept in bfloat16"
    yield Row("5", what, whole_16 / ms[repr(narrow)], 1.6 if setting is PTB else None, at_least=True)
    yield from against_authors(setting, whole_16)
    if setting is COPY:
        yield Row("4", f"{setting.name}: {exact!r} / OK(rank={setting.rank}, window=0)", ms[repr(exact)] / whole_0, 1.0)


def _cheap(setting, effort, say):
    say(f"KTP at {setting.name}")
    cases = {
        "KTP(rank=16)": training(setting, eg.KTP(rank=16), effort.steps),
        "TBPTT(horizon=16, stride=1)": training(setting, eg.TBPTT(horizon=16, stride=1), effort.steps),
    }
    ktp, tbptt = (ms := milliseconds(cases, effort.rounds)).values()
    yield Row("3", f"{setting.name}: KTP(rank=16) / TBPTT(horizon=16, stride=1)", ktp / tbptt, 2.0, milliseconds=ms)


def _rolling(setting, effort, say):
    """Truncated backpropagation with an update at every step, on the cell that most people have."""
    lstm, estimator = dataclasses.replace(setting, cell="LSTM"), eg.TBPTT(horizon=25, stride=1)
    say(f"{estimator!r} at {setting.name}")
    forms = bare.backward_products(lstm, estimator.horizon, effort.steps // 4)
    cases = {f"its products, {form}": case for form, case in forms.items()}
    cases[repr(estimator)] = training(lstm, estimator, effort.steps)
    *products, whole = (ms := milliseconds(cases, effort.rounds)).values()
    what = f"{setting.name}, LSTM: {estimator!r} / its bare backward products"
    yield Row("3", what, whole / min(products), 1.5, milliseconds=ms)


def _uoro(setting, effort, say):
    say(f"UORO at {setting.units} units")
    cases = {
        "one pass": bare.one_pass(setting, effort.steps),
        "UORO": training(setting, eg.UORO(), effort.steps),
    }
    one, uoro = (ms := milliseconds(cases, effort.rounds)).values()
    what = f"{setting.units} units, batch {setting.batch}: UORO / one pass over batch x weights"
    yield Row("3", what, uoro / one, 5.0 if setting.units <= 128 else 3.0, milliseconds=ms)


def _networks(effort, say):
    """Any network against the form that Kronecker cells have; a stack against one layer of as many units."""
    say("any network")
    one = dataclasses.replace(COPY, cell="LSTM")
    two = dataclasses.replace(one, units=COPY.units // 2, layers=2)
    settings = {
        "RHN 128": COPY,
        "RHN 128, undeclared": dataclasses.replace(COPY, undeclared=True),
        "LSTM 128": one,
        "2 x LSTM 64": two,
    }
    ms = milliseconds({name: training(s, s.ok(), effort.steps) for name, s in settings.items()}, effort.rounds)
    general, fast = ms["RHN 128, undeclared"], ms["RHN 128"]
    yield Row("9", "OK(window=16) on a general cell / on the same RHN 128", general / fast, 2.5, milliseconds=ms)
    yield Row("9", "OK(window=16) on 2 x LSTM 64 / on one LSTM 128", ms["2 x LSTM 64"] / ms["LSTM 128"], None)


def _stack(effort, say):
    """Two layers against the products that their fold cannot do without, and one read of their influences."""
    setting = dataclasses.replace(COPY, cell="LSTM", layers=2)
    say(f"2 x LSTM {setting.units}")
    cases = {"OK(window=16)": training(setting, setting.ok(), effort.steps // 2)}
    cases |= {f"bare products, {form}": case for form, case in bare.stack_products(setting).items()}
    cases["one read"] = bare.stack_read(setting, effort.steps // 4)
    ms = milliseconds(cases, effort.rounds)
    floor = min(v for name, v in ms.items() if name.startswith("bare")) + ms["one read"]
    what = f"2 x LSTM {setting.units}, batch {setting.batch}: OK(window=16) / its floor"
    yield Row("6", what, ms["OK(window=16)"] / floor, 1.5, milliseconds=ms)


def _unit_local(effort, say):
    """Exact gradients of cells whose units do not see each other, against the shortest truncation of the same cell."""
    exact, shortest = eg.RTRL(), eg.TBPTT(horizon=1, stride=1)
    for cell in ("LRU", "RTU", "MinGRU"):
        say(f"exact gradients of {cell}")
        setting = dataclasses.replace(COPY, cell=cell)
        cases = {f"{cell} 128, {each!r}": training(setting, each, 4 * effort.steps) for each in (exact, shortest)}
        one, other = (ms := milliseconds(cases, effort.rounds)).values()
        what = f"{cell} {setting.units}, batch {setting.batch}: {exact!r} / {shortest!r}"
        yield Row("10", what, one / other, 1.5, milliseconds=ms)


def _compile(setting, say):
    say(f"compiling at {setting.name}")
    learner, seconds = setting.learner(setting.ok()), {}
    for steps in (64, 4096):
        jax.clear_caches()
        start = time.perf_counter()
        learner.compile(*setting.data(steps))
        seconds[steps] = time.perf_counter() - start
    yield Row("6", f"{setting.name}: seconds to compile `run`", max(seconds.values()), 15.0, unit="s")
    yield Row("6", f"{setting.name}: compiling 4,096 steps / 64 steps", seconds[4096] / seconds[64], 1.25)
    if setting is COPY:
        took = starts()
        what = f"{setting.name}: seconds from a learner to its first result"
        yield Row("6", f"{what}, nothing compiled yet", took["cold"], 6.0, unit="s")
        yield Row("6", f"{what}, programs found on disk", took["second"], 1.5, unit="s")


def _short_steps(effort, say):
    say("short steps")
    setting, steps = Setting("short", units=32, batch=1, rank=4, symbols=4), 2048
    estimators = {
        "OK(rank=4, window=16)": eg.OK(rank=4, window=16),
        "KTP(rank=4)": eg.KTP(rank=4),
        "UORO": eg.UORO(),
        "TBPTT(horizon=16, stride=1)": eg.TBPTT(horizon=16, stride=1),
    }
    cases = {"forward": forward(setting, steps)}
    cases |= {name: training(setting, estimator, steps) for name, estimator in estimators.items()}
    ms = milliseconds(cases, effort.rounds)
    for name in estimators:
        over = (ms[name] - ms["forward"]) * 1e3
        yield Row("8", f"32 units, batch 1: {name} over a bare forward scan", over, None, unit="µs a step")
    yield from _short_lstm(effort)


def _short_lstm(effort):
    """On the cell that most people have, and exactly on one of units by themselves; whole steps."""
    lstm = Setting("short", units=32, batch=1, rank=4, symbols=4, cell="LSTM")
    wanted = {"LSTM": (lstm, lstm.ok(), 60.0), "MinGRU": (dataclasses.replace(lstm, cell="MinGRU"), eg.RTRL(), 30.0)}
    cases = {name: training(setting, estimator, 2048) for name, (setting, estimator, _) in wanted.items()}
    ms = milliseconds(cases, effort.rounds)
    for name, (_, estimator, bound) in wanted.items():
        yield Row("8", f"{name} 32, batch 1: {estimator!r}", ms[name] * 1e3, bound, unit="µs a step")
