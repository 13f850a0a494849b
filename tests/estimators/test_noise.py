"""How noisy: OK below KF-RTRL-AVG, and a window below none. `python -m tests.estimators.test_noise` prints the table."""

import equinox as eqx
import jax
import numpy as np
import pytest

import evergrad as eg
from tests.helpers import crossed

pytestmark = pytest.mark.optimised

UNITS, SYMBOLS, STEPS, DRAWS = 32, 8, 300, 24
ESTIMATORS = {
    "KF(copies=8)": eg.KF(copies=8),
    "OK(rank=8, window=0, signs)": eg.OK(rank=8, window=0, mix="signs"),
    "OK(rank=8, window=0, sampling)": eg.OK(rank=8, window=0),
    "OK(rank=8, window=8, signs)": eg.OK(rank=8, window=8, mix="signs"),
    "OK(rank=8, window=8, sampling)": eg.OK(rank=8, window=8),
}


def slowly_forgetting():
    """An RHN of 32 units whose carry gates stay around 0.95, on one stream of random symbols."""
    keys = jax.random.split(jax.random.key(0), 3)
    cell = eg.RHN(SYMBOLS, UNITS, key=keys[0], initial="fan_in")
    weight = 1.5 * cell.weight
    cell = eqx.tree_at(lambda c: c.weight, cell, weight.at[-1, UNITS:].add(3.0))
    model = eg.Model(cell, eg.Softmax(UNITS, SYMBOLS, key=keys[1], initial="fan_in"))
    symbols = np.random.default_rng(0).integers(0, SYMBOLS, (STEPS + 1, 1))
    return model, symbols[:-1], symbols[1:]


def squared_errors(names=tuple(ESTIMATORS)):
    """For each estimator the mean over draws and steps of ‖estimate − truth‖², over the mean of ‖truth‖²."""
    model, xs, ys = slowly_forgetting()
    truth = eg.gradients(model, eg.RTRL(window=8), xs, ys, key=jax.random.key(1))[1].cell.weight
    power = float((truth**2).sum((1, 2)).mean())

    def error(estimator):
        def draw(key):
            return eg.gradients(model, estimator, xs, ys, key=key)[1].cell.weight

        def total(key):
            return ((draw(key) - truth) ** 2).sum((1, 2)).mean()

        return float(jax.lax.map(total, jax.random.split(jax.random.key(2), DRAWS)).mean()) / power

    return {name: error(ESTIMATORS[name]) for name in names}


@pytest.mark.parametrize("mix", crossed(["signs", "sampling"], lambda mix: mix == "sampling"))
def test_ok_is_quieter_than_kf_and_a_window_quieter_still(mix):
    kf, without, with_window = squared_errors(
        ("KF(copies=8)", f"OK(rank=8, window=0, {mix})", f"OK(rank=8, window=8, {mix})")
    ).values()
    assert without < kf
    assert with_window <= 0.5 * without


def show(errors):
    print(f"\nsquared error of the gradient over its squared norm, {STEPS} steps, {DRAWS} draws")
    for name, value in errors.items():
        print(f"  {name:32s} {value:9.5f}")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    show(squared_errors())
