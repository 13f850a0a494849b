"""What can be asked of a model: each changes it in the same way whenever it is asked, so that it can be done again."""

from collections.abc import Callable
from typing import Any, NamedTuple

from evergrad._core.checks import refuse_unless


class Action(NamedTuple):
    """`apply(model, x, y, key)` does it, and returns what it predicts, or None; `takes_y` if it learns."""

    apply: Callable[[Any, dict[str, Any], Any, Any], Any]
    takes_y: bool


def predict(model: Any, x: dict[str, Any], y: Any = None, key: Any = None) -> Any:
    """A number, or the chance of each class."""
    named = _named(model, key)
    return model.predict_proba_one(x) if hasattr(model, "predict_proba_one") else model.predict_one(x, **named)


def learn(model: Any, x: dict[str, Any], y: Any, key: Any = None) -> None:
    model.learn_one(x, y, **_named(model, key))


def predict_and_learn(model: Any, x: dict[str, Any], y: Any, key: Any = None) -> Any:
    """The prediction from before it learned."""
    prediction = predict(model, x, None, key)
    learn(model, x, y, key)
    return prediction


def _named(model, key):
    """The key for a pool, which needs one; nothing for the others, who know none."""
    keyed, name = getattr(model, "keyed", False), type(model).__name__
    refuse_unless(keyed or key is None, f'"key" is {key!r}, and {name} is one series without keys: leave it out.')
    refuse_unless(not keyed or key is not None, f'{name} has a series for every key: say "key", whose sample it is.')
    return {"key": key} if keyed else {}


ACTIONS = {
    "predict": Action(predict, takes_y=False),
    "learn": Action(learn, takes_y=True),
    "predict_and_learn": Action(predict_and_learn, takes_y=True),
}
