"""Programs for accelerators that are not here: they can be lowered without one."""

import equinox as eqx
import jax
import optax
import pytest
from jax import export

import evergrad as eg
from evergrad import _native as native
from evergrad._cells.base import outputs_of
from evergrad._native.products import FEW
from tests.helpers import ESTIMATORS, PAIRS, crossed, make_data, make_model

LOWERED = ("rtrl", "tbptt", "uoro", "kf", "ok", "ktp")  # the others are made of the same parts
UNIT_LOCAL = {name: getattr(eg, name) for name in ("LRU", "RTU", "ELSTM", "MinGRU", "MinLSTM", "RGLRU", "IndRNN")}


def lowered(model, estimator, *platforms, batch=2):
    """A training run of some steps, lowered."""
    learner = eg.Learner(model, estimator, optax.adam(1e-3), clip=1.0)
    state = learner.init(batch=batch, key=jax.random.key(0))
    arrays, rest = eqx.partition(state, eqx.is_array)
    xs, ys, resets = make_data(6, batch)

    def run(arrays, xs, ys, resets):
        data = learner._data(xs, ys, resets, None, lead=xs.shape)
        return eqx.filter(learner._recipe.drive(data, eqx.combine(arrays, rest))[0], eqx.is_array)

    return export.export(jax.jit(run), platforms=platforms)(arrays, xs, ys, resets)


@pytest.mark.parametrize(("estimator", "cell"), crossed(PAIRS, lambda e, c: c == "lstm" and e in LOWERED))
def test_a_training_loop_can_be_lowered_for_accelerators(estimator, cell):
    assert lowered(make_model(cell), ESTIMATORS[estimator], "cuda", "tpu").platforms == ("cuda", "tpu")


@pytest.mark.parametrize("kind", crossed(UNIT_LOCAL, lambda kind: kind in ("LRU", "MinGRU")))
def test_exact_cells_can_be_lowered_for_accelerators(kind):
    cell = UNIT_LOCAL[kind](inputs=3, units=3, key=jax.random.key(0))
    model = eg.Model(cell, eg.Softmax(units=outputs_of(cell), classes=3, key=jax.random.key(1)))
    assert lowered(model, eg.RTRL(), "cuda", "tpu").platforms == ("cuda", "tpu")


KERNELS = {
    "fold_float adam": eg.OK(rank=8),
    "carry combine adam": eg.KF(copies=8),
    "back outer product adam": eg.OK(rank=8, window=3),
    "back outer product": eg.TBPTT(horizon=3, stride=3),
    "mix adam bits fold_uint32": eg.UORO(),
    "triples outer adam bits fold_uint32": eg.KTP(rank=8),
}


@pytest.mark.skipif(not native.available(), reason="there is no C++ compiler")
@pytest.mark.parametrize("kernels", crossed(KERNELS, lambda kernels: "fold_float" in kernels or "triples" in kernels))
def test_kernels_for_this_processor_are_left_out_of_programs_for_others(kernels, monkeypatch):
    monkeypatch.setattr(native, "SMALL", 1 << 12)
    model, estimator = make_model("rhn", units=64), KERNELS[kernels]
    xs, ys, _ = make_data(6, FEW)
    here = eg.Learner(model, estimator, optax.adam(1e-3), clip=1.0).compile(xs, ys).as_text()
    assert [name for name in kernels.split() if f"evergrad_{name}" not in here] == []
    with pytest.raises(ValueError, match="evergrad_"):  # what JAX does not know it does not export
        lowered(model, estimator, "cpu", batch=FEW)
    elsewhere = lowered(model, estimator, "cuda", "tpu", batch=FEW)
    assert elsewhere.platforms == ("cuda", "tpu")
    assert "evergrad_" not in elsewhere.mlir_module()
