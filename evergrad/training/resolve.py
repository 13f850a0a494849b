"""Settings from defaults, a TOML file and the command line, the later winning, checked one by one."""

import tomllib
from pathlib import Path
from typing import Any

from evergrad.checks import InputError, refuse_unless
from evergrad.names import refuse_unknown
from evergrad.training.settings import ESTIMATORS, Settings, default, fields, flag, split_names


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
    _check_parameters(chosen, {*from_file, *said})
    targets = split_names(chosen.get("targets")) or []
    for name in targets:
        refuse_unless(targets.count(name) == 1, f"--targets has {name} twice: name each column once.")
    if chosen["weights"] is not None:
        chosen |= _decided_by_weights(chosen, {*from_file, *said})
    if chosen.get("reset_every") is not None and "reset_probability" not in {*from_file, *said}:
        chosen["reset_probability"] = 0.0
    chosen |= _decided_by_gap(chosen, {*from_file, *said})
    if chosen["horizon"] is not None and chosen["stride"] is None:
        chosen["stride"] = chosen["horizon"]
    return Settings(task=task, **chosen)


def checked(field: Any, value: Any, source: str, *, stored: bool = False) -> Any:
    """The value in the field's kind, refused where it cannot be. What is `stored` may be larger than is allowed now."""
    about = field.metadata
    kind = about["kind"]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    refuse_unless(
        isinstance(value, kind) and isinstance(value, bool) == (kind is bool),
        f"{source} is {value!r}, but must be {_KINDS[kind]}.",
    )
    if about["choices"]:
        refuse_unknown(f"value of {source}", value, about["choices"], "choose one of")
    lowest, highest, above = about["at_least"], None if stored else about["at_most"], about["above"]
    refuse_unless(lowest is None or value >= lowest, f"{source} is {value}, but must be {lowest} or more.")
    refuse_unless(highest is None or value <= highest, f"{source} is {value}, but must be {highest} or less.")
    refuse_unless(above is None or value > above, f"{source} is {value}, but must be above {above}.")
    return value


_KINDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


def _read_config(path: Path, task: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path of --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}. Write lines such as `units = 128`.") from None
    content = {name.replace("-", "_"): value for name, value in content.items()}
    meant = content.pop("task", task)
    refuse_unless(meant == task, f'{path} is for the task "{meant}", but this is `evergrad train {task}`.')
    for name in content:
        refuse_unknown(f"setting in {path}", name, fields(task))
    return content


def _decided_by_weights(chosen: dict[str, Any], asked: set[str]) -> dict[str, Any]:
    from evergrad.training.weights import shape_of

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
    bridging = "orthogonal" if chosen["cell"] == "rnn" else f"chrono:{max(3, longest)}"
    fresh = "initial" not in asked and chosen["weights"] is None
    return {"gap_to": longest} | ({"initial": bridging} if fresh else {})


def _check_parameters(chosen: dict[str, Any], asked: set[str]) -> None:
    """Refuses a parameter that the estimator does not have."""
    estimator = chosen["estimator"]
    own = ESTIMATORS[estimator][1]
    for name in sorted(asked):
        if chosen[name] is not None and name not in own and any(name in names for _, names in ESTIMATORS.values()):
            mine = ", ".join(map(flag, own))
            others = ", ".join(each for each, (_, names) in ESTIMATORS.items() if name in names)
            raise InputError(f"{flag(name)} means nothing to {estimator}, which has {mine}; it belongs to {others}.")
