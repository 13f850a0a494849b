"""What can be asked of a model: each changes it in the same way whenever it is asked, so that it can be done again."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Action(NamedTuple):
    """`apply(model, x, y)` does it, and returns what it predicts, or None; `takes_y` if it learns."""

    apply: Callable[[Any, dict[str, Any], Any], Any]
    takes_y: bool


def predict(model: Any, x: dict[str, Any], y: Any = None) -> Any:
    """A number, or the chance of each class."""
    return model.predict_proba_one(x) if hasattr(model, "predict_proba_one") else model.predict_one(x)


def learn(model: Any, x: dict[str, Any], y: Any) -> None:
    model.learn_one(x, y)


def predict_and_learn(model: Any, x: dict[str, Any], y: Any) -> Any:
    """The prediction from before it learned."""
    prediction = predict(model, x)
    learn(model, x, y)
    return prediction


ACTIONS = {
    "predict": Action(predict, takes_y=False),
    "learn": Action(learn, takes_y=True),
    "predict_and_learn": Action(predict_and_learn, takes_y=True),
}
