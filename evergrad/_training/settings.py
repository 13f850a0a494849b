"""What a run is: one table of options, from which the command line, the TOML files and the checks are all made.

Nothing here imports JAX, so that `--help` is quick.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from evergrad import _registry as registry

TASKS = tuple(registry.TASKS)
OTHERS = "all other tasks"  # in defaults that differ from task to task
KNOWN = registry.tagged(registry.TASKS, "known")  # tasks of which the best prediction is known
FILES = ("data", "valid", "test", "weights")  # options that name files
SCHEDULES = ("constant", "linear", "cosine", "warmup-cosine")


def option(
    default: Any,
    kind: type,
    text: str | dict[str, str],
    *,
    group: str,
    tasks: tuple[str, ...] = TASKS,
    choices: tuple[str, ...] = (),
    at_least: int | float | None = None,
    at_most: int | None = None,
    above: int | float | None = None,
    otherwise: str | dict[str, str] | None = None,
    resumable: bool = False,
) -> Any:
    """A field with all that the command line has to say about it. `default`, `text` and what there is `otherwise` may
    differ from task to task (a dict)."""
    return dataclasses.field(
        default=None,
        metadata={
            "default": default,
            "kind": kind,
            "help": text,
            "group": group,
            "tasks": tasks,
            "choices": choices,
            "at_least": at_least,
            "at_most": at_most,
            "above": above,
            "otherwise": otherwise,
            "resumable": resumable,
        },
    )


_MODEL, _ESTIMATOR, _LEARNING, _TASK, _RUN = "Model", "Estimator", "Learning", "Task", "Run"


def parameter(name: str) -> Any:
    """A field for a parameter of estimators, as the registry has it."""
    about, having = registry.PARAMETERS[name], registry.having(name)
    everyone = len(having) > 3 and [each for each in registry.ESTIMATORS if each not in having]
    who = f"all but {', '.join(everyone)}" if everyone and len(everyone) < len(having) else ", ".join(having)
    return option(
        None,
        about.kind,
        f"{about.text} ({who}).",
        group=_ESTIMATOR,
        choices=about.choices,
        at_least=about.at_least,
        above=about.above,
        otherwise=registry.defaults_in_words(name),
    )


_LONGEST_LAG = 100_000  # where all that lies between is held
_LONGEST, _RAREST = 100_000_000, 1_000_000_000  # what is counted in 32 bits, with room for sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings:
    """Fields that do not apply to the task or the estimator are None."""

    task: str
    cell: str = option("rhn", str, "Recurrent cell.", group=_MODEL, choices=tuple(registry.CELLS))
    units: int = option(128, int, "Size of the hidden state.", group=_MODEL, at_least=1)
    layers: int | None = option(1, int, "Layers of cells, one on top of the other.", group=_MODEL, at_least=1)
    depth: str | None = option(
        "exact",
        str,
        "How a stack of layers is trained; layerwise is cheaper and biased.",
        group=_MODEL,
        choices=("exact", "layerwise"),
    )
    weights: str | None = option(
        None,
        str,
        "Start from this RNN, LSTM or GRU: a .onnx or .safetensors file, which then decides --cell and --units.",
        group=_MODEL,
        otherwise="random weights",
    )
    initial: str | None = option(
        {"cue": None, OTHERS: "fan_in"},
        str,
        "How weights start: normal (the paper's), fan_in, forget:B, chrono:T or orthogonal:R.",
        group=_MODEL,
        otherwise="chrono:GAP_TO, or orthogonal for ungated cells",
    )
    readout: str | None = option(
        None,
        str,
        "What turns the state into predictions.",
        group=_MODEL,
        choices=tuple(registry.READOUTS),
        otherwise=dict.fromkeys(("series", "trace", "rotation", "chaos"), "linear") | {OTHERS: "softmax"},
    )
    estimator: str = option(
        "ok",
        str,
        "How the gradient is estimated; rtrl unless said where units do not see each other "
        f"({', '.join(registry.tagged(registry.CELLS, 'unit-local'))}).",
        group=_ESTIMATOR,
        choices=tuple(registry.ESTIMATORS),
    )
    rank: int | None = parameter("rank")
    window: int | None = parameter("window")
    mix: str | None = parameter("mix")
    scope: str | None = parameter("scope")
    copies: int | None = parameter("copies")
    diagonal_rank: int | None = parameter("diagonal_rank")
    horizon: int | None = parameter("horizon")
    stride: int | None = parameter("stride")
    optimiser: str = option("adam", str, "Optimiser.", group=_LEARNING, choices=tuple(registry.OPTIMISERS))
    learning_rate: float = option(0.003, float, "Learning rate, the highest of a --schedule.", group=_LEARNING, above=0)
    schedule: str | None = option("constant", str, "How the learning rate goes on.", group=_LEARNING, choices=SCHEDULES)
    clip: float = option(1.0, float, "Norm that the recurrent gradient is clipped to.", group=_LEARNING, above=0)
    batch: int = option(
        {"text": 32, "series": 1, OTHERS: 16},
        int,
        "Streams learned from at once.",
        group=_LEARNING,
        at_least=1,
    )
    steps: int | None = option(
        {"series": None, OTHERS: 10_000},
        int,
        "Steps to take.",
        group=_LEARNING,
        at_least=1,
        otherwise="all rows",
        resumable=True,
    )
    seed: int = option(0, int, "Seed of everything random.", group=_LEARNING, at_least=0, at_most=2**32 - 1)
    precision: str = option(
        "float32",
        str,
        "Precision of all numbers; float64 takes twice the memory and more time.",
        group=_LEARNING,
        choices=("float32", "float64"),
    )

    length: int | None = option(
        1, int, "First string length.", group=_TASK, tasks=("copy",), at_least=1, at_most=_LONGEST
    )
    threshold: float | None = option(
        0.15, float, "Bits per symbol below which strings grow.", group=_TASK, tasks=("copy",), above=0
    )
    jitter: int | None = option(
        5, int, "Lengths to draw from.", group=_TASK, tasks=("copy",), at_least=1, at_most=_LONGEST
    )
    longest: int | None = option(
        256, int, "Length at which growth ends.", group=_TASK, tasks=("copy",), at_least=1, at_most=_LONGEST
    )

    gap: int | None = option(
        80, int, "Fewest steps from a cue to its question.", group=_TASK, tasks=("cue",), at_least=1, at_most=_LONGEST
    )
    gap_to: int | None = option(
        None, int, "Most steps from a cue to its question.", group=_TASK, tasks=("cue",), otherwise="1.5 x --gap"
    )
    resets: bool | None = option(True, bool, "Streams start anew at every cue.", group=_TASK, tasks=("cue",))

    t1: int | None = option(
        None, int, "Lag of the nearer input.", group=_TASK, tasks=("add",), at_least=1, otherwise="half of --t2"
    )
    t2: int | None = option(
        8, int, "Lag of the farther input.", group=_TASK, tasks=("add",), at_least=2, at_most=_LONGEST_LAG
    )
    isi: int | None = option(
        14,
        int,
        "Fewest steps from a pattern to its reward.",
        group=_TASK,
        tasks=("trace",),
        at_least=1,
        at_most=_LONGEST,
    )
    isi_to: int | None = option(
        26, int, "Most steps from a pattern to its reward.", group=_TASK, tasks=("trace",), at_most=_LONGEST_LAG
    )
    iti: int | None = option(
        80, int, "Fewest steps from a reward to the next pattern.", group=_TASK, tasks=("trace",), at_least=1
    )
    iti_to: int | None = option(
        120, int, "Most steps from a reward to the next pattern.", group=_TASK, tasks=("trace",), at_most=_LONGEST
    )
    discount: float | None = option(
        0.9, float, "What a reward is worth a step earlier.", group=_TASK, tasks=("trace",), above=0
    )
    dimensions: int | None = option(
        8, int, "Numbers of the vector to remember.", group=_TASK, tasks=("rotation",), at_least=2, at_most=_LONGEST_LAG
    )
    episode: int | None = option(
        64, int, "Steps that a vector is turned.", group=_TASK, tasks=("rotation",), at_least=1, at_most=_LONGEST
    )
    largest: int | None = option(32, int, "Largest n.", group=_TASK, tasks=("anbn",), at_least=2, at_most=_LONGEST_LAG)
    lag: int | None = option(
        16, int, "Steps from the bit to the question.", group=_TASK, tasks=("chain",), at_least=1, at_most=_LONGEST
    )
    system: str | None = option(
        "henon",
        str,
        "What is predicted a step ahead.",
        group=_TASK,
        tasks=("chaos",),
        choices=("henon", "mackey", "lorenz"),
    )
    delay: int | None = option(
        17,
        int,
        "Steps that Mackey and Glass's equation looks back.",
        group=_TASK,
        tasks=("chaos",),
        at_least=1,
        at_most=1000,
    )
    every: int | None = option(
        200, int, "Steps after which streams start anew.", group=_TASK, tasks=("chaos",), at_least=1, at_most=_LONGEST
    )

    data: str | None = option(
        None,
        str,
        {"text": "Text file, or folder with train.txt, valid.txt and test.txt.", "series": "CSV or Parquet file."},
        group=_TASK,
        tasks=("text", "series"),
        otherwise={"text": "pydoc_data.topics", "series": "required"},
    )
    valid: str | None = option(None, str, "Validation text.", group=_TASK, tasks=("text",), otherwise="5 % of --data")
    test: str | None = option(None, str, "Test text.", group=_TASK, tasks=("text",), otherwise="5 % of --data")
    bytes: bool | None = option(False, bool, "Predict bytes, not characters.", group=_TASK, tasks=("text",))
    reset_probability: float | None = option(
        0.01, float, "Chance that a stream starts anew at a step.", group=_TASK, tasks=("text",), at_least=0
    )
    reset_every: int | None = option(
        None,
        int,
        "Start anew at every place that is a multiple of this.",
        group=_TASK,
        tasks=("text",),
        at_least=1,
        at_most=_RAREST,
        otherwise="by chance only",
    )
    valid_every: int | None = option(
        10_000, int, "Steps from one validation to the next.", group=_TASK, tasks=("text",), at_least=1
    )

    columns: str | None = option(
        None, str, "Columns to read, a,b,c.", group=_TASK, tasks=("series",), otherwise="all but the time stamps"
    )
    targets: str | None = option(
        None, str, "Columns to forecast, a,b,c.", group=_TASK, tasks=("series",), otherwise="all that are read"
    )
    header: bool | None = option(
        None,
        bool,
        "Whether the first row of a CSV has names.",
        group=_TASK,
        tasks=("series",),
        otherwise="yes, unless it has only numbers",
    )
    time: str | None = option(
        None, str, "Column of time stamps.", group=_TASK, tasks=("series",), otherwise="one named time, date, …"
    )
    ahead: int | None = option(1, int, "Rows to forecast ahead.", group=_TASK, tasks=("series",), at_least=1)
    period: int | None = option(
        None, int, "Rows in a season, for the seasonal guess.", group=_TASK, tasks=("series",), otherwise="no season"
    )
    missing: str | None = option(
        "refuse",
        str,
        "Missing cells: refuse the file, or learn nothing from such a target.",
        group=_TASK,
        tasks=("series",),
        choices=("refuse", "skip"),
    )

    report: int = option(1000, int, "Steps from one report to the next.", group=_RUN, at_least=1, at_most=_RAREST)
    probe: int | None = option(
        None,
        int,
        "Measure the estimator every so many steps: cosine and error of its gradients, by forward-mode probes.",
        group=_RUN,
        at_least=1,
        otherwise="never",
    )
    probe_directions: int | None = option(
        None, int, "Random directions of a --probe.", group=_RUN, at_least=2, at_most=1_000_000, otherwise="32"
    )
    probe_steps: int | None = option(
        None, int, "Steps that a --probe looks at.", group=_RUN, at_least=2, at_most=_LONGEST, otherwise="100"
    )
    checkpoint_every: int | None = option(
        None, int, "Steps from one checkpoint to the next.", group=_RUN, at_least=1, otherwise="by time", resumable=True
    )
    checkpoint_seconds: float = option(
        60.0, float, "Seconds from one checkpoint to the next.", group=_RUN, above=0, resumable=True
    )
    reach_every: int | None = option(
        None,
        int,
        "Steps after which it is measured again how far back the gradient looks (reach.jsonl).",
        group=_RUN,
        at_least=1,
        otherwise="never",
        resumable=True,
    )
    # two at least: Orbax makes room for a new one before it is complete
    keep: int = option(3, int, "Checkpoints that are kept.", group=_RUN, at_least=2, resumable=True)
    on_divergence: str = option(
        "stop",
        str,
        "What to do when the loss explodes.",
        group=_RUN,
        choices=("stop", "reset-influence"),
        resumable=True,
    )
    tensorboard: bool = option(False, bool, "Write TensorBoard event files too.", group=_RUN, resumable=True)


def _with_parameters_of_others() -> type:
    """The same with a field for every parameter of estimators that other packages have registered."""
    known = {f.name for f in dataclasses.fields(_Settings)}
    more = [
        (name, about.kind | None, parameter(name)) for name, about in registry.PARAMETERS.items() if name not in known
    ]
    return dataclasses.make_dataclass("Settings", more, bases=(_Settings,), frozen=True, kw_only=True)


if TYPE_CHECKING:
    Settings = _Settings
else:
    Settings = _with_parameters_of_others()


def fields(task: str) -> dict[str, dataclasses.Field]:
    """The options of a task, by name."""
    return {f.name: f for f in dataclasses.fields(Settings) if f.name != "task" and task in f.metadata["tasks"]}


def default(field: dataclasses.Field, task: str) -> Any:
    return _of_task(field.metadata["default"], task)


def text(field: dataclasses.Field, task: str) -> str:
    """What an option is, in the words of a task."""
    return _of_task(field.metadata["help"], task)


def otherwise(field: dataclasses.Field, task: str) -> str | None:
    """In words, what there is where the default is None."""
    return _of_task(field.metadata["otherwise"], task)


def _of_task(value: Any, task: str) -> Any:
    return value.get(task, value.get(OTHERS)) if isinstance(value, dict) else value


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def split_names(names: str | None) -> list[str] | None:
    return [name.strip() for name in names.split(",")] if names else None
