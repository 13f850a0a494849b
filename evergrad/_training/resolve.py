"""Settings from defaults, a TOML file and the command line, the later winning, checked one by one."""

import tomllib
from pathlib import Path
from typing import Any, cast

from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.names import refuse_unknown
from evergrad._core.printable import brief, first_line, printable
from evergrad._registry import CELLS, ESTIMATORS, having, tagged
from evergrad._tasks.reading import read_file
from evergrad._training.settings import Settings, default, fields, flag, split_names


def resolve(task: str, given: dict[str, Any], config: Path | None = None) -> Settings:
    """All settings of a run of `task`; `given` has what the command line said, None where it said nothing."""
    options = fields(task)
    from_file = {} if config is None else _read_config(config, task)
    said = {name: value for name, value in given.items() if value is not None}
    chosen = {name: default(field, task) for name, field in options.items()} | from_file | said
    for name, value in chosen.items():
        if value is not None:
            source = f"{flag(name)}" if name in said or config is None else f"{config}, {name}"
            chosen[name] = checked(options[name], value, source)
    if chosen["cell"] in tagged(CELLS, "unit-local") and "estimator" not in {*from_file, *said}:
        chosen["estimator"] = "rtrl"
    _check_parameters(chosen, {*from_file, *said})
    targets = split_names(chosen.get("targets")) or []
    for name in targets:
        refuse_unless(targets.count(name) == 1, f"--targets has {printable(name)} twice: name each column once.")
    if chosen["weights"] is not None:
        chosen |= _decided_by_weights(chosen, {*from_file, *said})
    if chosen.get("reset_every") is not None and "reset_probability" not in {*from_file, *said}:
        chosen["reset_probability"] = 0.0
    chosen |= _decided_by_gap(chosen, {*from_file, *said})
    if chosen.get("t2") is not None and chosen["t1"] is None:
        chosen["t1"] = chosen["t2"] // 2
    if chosen["horizon"] is not None and chosen["stride"] is None:
        chosen["stride"] = chosen["horizon"]
    return Settings(task=task, **chosen)


def checked(field: Any, value: Any, source: str, *, stored: bool = False) -> Any:
    """The value in the field's kind, refused where it cannot be. What is `stored` may be larger than is allowed now."""
    about = field.metadata
    kind = about["kind"]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        refuse_unless(abs(value) <= _LARGEST, f"{source} is {brief(value)}: write it as 1e30, with an exponent.")
        value = float(value)
    refuse_unless(
        isinstance(value, kind) and isinstance(value, bool) == (kind is bool),
        f"{source} is {brief(value)}, but must be {_KINDS[kind]}.",
    )
    if isinstance(value, str):
        _check_text(value, source)
    value = cast(Any, value)
    if about["choices"]:
        refuse_unknown(f"value of {source}", value, about["choices"], "choose one of")
    lowest, above = about["at_least"], about["above"]
    highest = (_LARGEST if kind is int else None) if stored or about["at_most"] is None else about["at_most"]
    refuse_unless(lowest is None or value >= lowest, f"{source} is {brief(value)}, but must be {lowest} or more.")
    refuse_unless(highest is None or value <= highest, f"{source} is {brief(value)}, but must be {highest} or less.")
    refuse_unless(above is None or value > above, f"{source} is {brief(value)}, but must be above {above}.")
    return value


_LARGEST = 2**63 - 1  # size that an array can have
_KINDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


def _check_text(value: str, source: str) -> None:
    """Refuses what no file can be called and no settings can hold."""
    refuse_unless("\0" not in value, f"{source} is {brief(value)}: it has a zero byte, which no name has.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{source} is {brief(value)}, which is not UTF-8: give the file a name that is.") from None


def _read_config(path: Path, task: str) -> dict[str, Any]:
    raw = read_file(path)
    try:
        content = tomllib.loads(raw.decode())
    except RecursionError:
        raise InputError(f"{path} has lists in lists too deep to read. Write lines such as `units = 128`.") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise InputError(f"{path} is no TOML: {first_line(error)}. Write lines such as `units = 128`.") from None
    content = {name.replace("-", "_"): value for name, value in content.items()}
    meant = content.pop("task", task)
    refuse_unless(meant == task, f"{path} is for the task {brief(meant)}, but this is `evergrad train {task}`.")
    for name in content:
        refuse_unknown(f"setting in {path}", name, fields(task))
    return content


def _decided_by_weights(chosen: dict[str, Any], asked: set[str]) -> dict[str, Any]:
    from evergrad._training.weights import shape_of

    refuse_unless(
        "initial" not in asked, f"--initial, but the weights come from {chosen['weights']}: leave --initial out."
    )
    decided = shape_of(chosen["weights"]) | {"initial": None}
    for name in asked & {"cell", "units"}:
        refuse_unless(
            chosen[name] == decided[name],
            f"{flag(name)} {chosen[name]}, but {chosen['weights']} has {decided[name]}: leave {flag(name)} out.",
        )
    return decided


def _decided_by_gap(chosen: dict[str, Any], asked: set[str]) -> dict[str, Any]:
    """Of the cue task: the longest gap, and weights that can bridge it."""
    if chosen.get("gap") is None:
        return {}
    longest = chosen["gap_to"] or chosen["gap"] * 3 // 2
    bridging = "orthogonal" if chosen["cell"] in tagged(CELLS, "ungated") else f"chrono:{max(3, longest)}"
    fresh = "initial" not in asked and chosen["weights"] is None
    return {"gap_to": longest} | ({"initial": bridging} if fresh else {})


def _check_parameters(chosen: dict[str, Any], asked: set[str]) -> None:
    """Refuses a parameter that the estimator does not have."""
    estimator = chosen["estimator"]
    own = ESTIMATORS[estimator].parameters
    for name in sorted(asked):
        if chosen[name] is not None and name not in own and having(name):
            mine = ", ".join(map(flag, own)) or "no parameters"
            others = ", ".join(having(name))
            raise InputError(f"{flag(name)} means nothing to {estimator}, which has {mine}; it belongs to {others}.")
