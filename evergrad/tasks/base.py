"""Where steps come from: a source makes one step of all streams at a time, inside the compiled loop."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float


class Data(eqx.Module):
    """x, y, reset and the weight of the target (0: missing) of B streams; a sequence has T steps in front."""

    x: Array
    y: Array
    reset: Array
    weight: Array


class Source(eqx.Module):
    """Makes streams. All that changes is in `position`, a pytree, so that a run can be resumed anywhere."""

    @abc.abstractmethod
    def emit(self, position: Any) -> tuple[Data, Any]:
        """The next step of all streams."""

    def hear(self, position: Any, losses: Float[Array, " B"], model: Any) -> Any:
        """Told how the step went, for sources that make things harder as learning goes on or keep a score.

        `model` has not learned from this step yet.
        """
        return position


class Sequence(Source):
    """Steps that are all there already: the position is the index of the next one."""

    data: Data

    def emit(self, position):
        return jax.tree.map(lambda a: a[position], self.data), position + 1
