"""Probes, certificates, reservoirs and public slips."""

from tests.planted.kind import Planted

LOCAL = "tests/estimators/test_local.py::"
SLIPS = "tests/estimators/test_slips.py::"
RLS = "tests/core/test_rls.py::"
BOUNDS = "tests/lab/test_certificates.py::"
PROBES = "tests/lab/test_reach_and_probe.py::"
REST = "tests/related/test_recurrent_backpropagation.py::"
_STILL = "jax.lax.stop_gradient"

MEASURED = [
    Planted(
        "certificate: in a hundred runs no error is above its bound",
        BOUNDS + "test_no_error_is_above_its_bound_in_a_hundred_runs[0]",
        "lab/certificates.py",
        "jnp.linalg.norm(d[estimator.rank :])",
        "jnp.linalg.norm(d[estimator.rank + 1 :])",
        "one dropped singular value is forgotten",
    ),
    Planted(
        "it is 0 where nothing is dropped",
        BOUNDS + "test_it_is_zero_where_nothing_is_dropped",
        "lab/certificates.py",
        "jnp.linalg.norm(d[estimator.rank :])",
        "jnp.linalg.norm(d[estimator.rank - 1 :])",
        "one that is kept counts as dropped",
    ),
    Planted(
        "the spectral radius in the place of ρ̄ is not enough",
        BOUNDS + "test_the_spectral_radius_would_not_do",
        "lab/certificates.py",
        "return jnp.minimum(jnp.linalg.norm(p), jnp.sqrt(size.sum(0).max() * size.sum(1).max()))",
        "return jnp.abs(jnp.linalg.eigvals(p)).max() + 0 * size.max()",
        "the spectral radius",
    ),
    Planted(
        "unbiased OK: the mean square of the error is within V",
        BOUNDS + "test_the_mean_square_is_within_the_variance",
        "lab/certificates.py",
        "d**2 * (1 / jnp.where(p > 0, p, 1) - 1)",
        "0.5 * d**2 * (1 / jnp.where(p > 0, p, 1) - 1)",
        "half the variance of a fold",
    ),
    Planted(
        "probes: all basis directions give the gradient",
        PROBES + "test_all_basis_directions_give_the_gradient",
        "_core/probes.py",
        "(along, carry[1]))",
        "(along, jnp.zeros_like(carry[1])))",
        "the tangent is forgotten from step to step",
    ),
    Planted(
        "all sign vectors give the gradient, and a biased estimator's exact figures",
        PROBES + "test_all_sign_vectors_give_the_gradient_and_the_exact_figures",
        "_core/probes.py",
        "sums = [((dots - truth) ** 2).sum(1),",
        "sums = [abs(dots**2 - truth**2).sum(1),",
        "a difference of squares",
    ),
    Planted(
        "2,000 directions: within a tenth of the exact error",
        PROBES + "test_probes_agree_with_exact_rtrl",
        "_core/probes.py",
        "[jax.random.rademacher(k, a.shape, a.dtype)",
        "[jax.random.uniform(k, a.shape, a.dtype)",
        "directions that are not of mean 0",
    ),
    Planted(
        "at rest RTRL's G is (I − H)⁻¹ F",
        REST + "test_rtrl_at_rest_is_implicit_differentiation",
        "_core/linearize.py",
        "product = jnp.tensordot(self.dense_h(), rows[0], (0, 0))",
        "product = jnp.tensordot(self.dense_h(), rows[0], (1, 0))",
        "H transposed",
    ),
    Planted(
        "the Neumann series of K terms is TBPTT(K + 1)",
        REST + "test_neumann_is_tbptt_with_one_step_more",
        "_pasts/slots.py",
        "return jnp.minimum(track.count, count_of(track))",
        "return jnp.minimum(track.count, count_of(track) - 1)",
        "a step less than the horizon",
    ),
]

RESERVOIRS = [
    Planted(
        "RLS is batch ridge at every step; a public version has the bias outside",
        RLS + "test_it_is_batch_ridge_at_every_step[False-1.0]",
        "_core/rls.py",
        "jnp.append(h, jnp.ones((), h.dtype))",
        "jnp.append(h, jnp.zeros((), h.dtype))",
        "no bias in φ",
    ),
    Planted(
        "the same with forgetting",
        RLS + "test_it_is_batch_ridge_at_every_step[False-0.99]",
        "_core/rls.py",
        "root / jnp.sqrt(forget)",
        "root / forget",
        "λ² in the place of λ",
    ),
    Planted(
        "missing targets skip the update",
        RLS + "test_it_is_batch_ridge_at_every_step[False-1.0]",
        "_core/rls.py",
        "scale = jnp.sqrt(jnp.maximum(weight, 0))",
        "scale = jnp.ones_like(weight)",
        "they are learned as zeros",
    ),
    Planted(
        "and a step without any is not forgotten for",
        RLS + "test_it_is_batch_ridge_at_every_step[False-0.99]",
        "_core/rls.py",
        "jnp.any(weight != 0) & ~",
        "jnp.all(weight == weight) & ~",
        "λ counts at every step",
    ),
    Planted(
        "a million steps in float32 stay well",
        RLS + "test_a_million_steps_in_float32_stay_well[0.999]",
        "_core/rls.py",
        "return solution, root - jnp.outer(gain, along) * (size / (size + jnp.sqrt(size)))",
        "return solution, jnp.linalg.cholesky(root @ root.T - jnp.outer(gain, root @ along))",
        "P itself is carried on, and its root taken anew",
    ),
    Planted(
        "silence does not wind P up",
        RLS + "test_silence_does_not_wind_it_up",
        "_core/rls.py",
        "_WOUND_UP = 1e6",
        "_WOUND_UP = 1e12",
        "a bound that is none",
    ),
    Planted(
        "features that depend on each other, or say nothing, do not end forgetting",
        RLS + "test_features_that_say_nothing_do_not_end_forgetting",
        "_core/rls.py",
        "self._unwound() if self.forgetting < 1 else self.root.value",
        "self.root.value",
        "forgetting stops for all where it must for one",
    ),
    Planted(
        "a trained cell gets the derivative of the error made before",
        RLS + "test_a_trained_cell_gets_the_derivative_of_the_error_made_before",
        "_core/driver.py",
        "stream_losses(eqx.combine(readout, rest), outputs,",
        "stream_losses(_taught(eqx.combine(readout, rest), outputs, data), outputs,",
        "the error after the readout has learned",
    ),
    Planted(
        "a reservoir stays as it is",
        RLS + "test_a_reservoir_learns_by_its_readout_alone",
        "_estimators/fixed.py",
        "trains_cell: ClassVar[bool] = False",
        "trains_cell: ClassVar[bool] = True",
        "the optimiser's weight decay reaches it",
    ),
]

PUBLIC = [
    Planted(
        "SnAp-1 of a GRU: a public version has σ'(z) as σ(z)σ(1 − z)",
        SLIPS + "test_snap1_on_a_gru_has_the_slopes_and_the_weights_of_its_gates",
        "_cells/gru.py",
        "reset, update = jax.nn.sigmoid(z[0]), jax.nn.sigmoid(z[1])\n        return",
        f"reset, update = jax.nn.sigmoid(z[0]), {_STILL}(jax.nn.sigmoid(z[1]))\n"
        f"        update = update + (z[1] - {_STILL}(z[1])) * {_STILL}(update * jax.nn.sigmoid(1 - z[1]))\n        return",
        "that slope",
    ),
    Planted(
        "SnAp-1 of a GRU: a public version carries the candidate by the reset gate's weights",
        SLIPS + "test_snap1_on_a_gru_has_the_slopes_and_the_weights_of_its_gates",
        "_core/units.py",
        'jnp.einsum("igi->gi", recurrent_weight(cell))',
        'jnp.einsum("igi->gi", recurrent_weight(cell))[jnp.asarray([0, 1, 2, 0])]',
        "those weights",
    ),
    Planted(
        "SnAp-1 of an RNN: a public version pairs the immediate influence a step late",
        LOCAL + "test_snap1_is_rtrl_with_all_but_the_own_unit_masked_out[rnn]",
        "_estimators/local.py",
        "jax.tree.map(lambda a: a[None], product), of_weights)\n    return _plus(weights, jax.tree.map(outer, gates)),",
        "jax.tree.map(lambda a: a[None], product), _plus(of_weights, jax.tree.map(outer, gates)))\n    return weights,",
        "F is carried on before it is there",
    ),
    Planted(
        '"RFLO" with a decay of 0.9 on units that have none',
        SLIPS + "test_units_without_a_leak_have_no_decay",
        "_core/units.py",
        "        direct = memory.direct\n",
        "        direct = memory.direct + 0.9\n",
        "that decay",
    ),
    Planted(
        "leaky units: a public version has 1/τ for Δt/τ in what comes in",
        SLIPS + "test_the_leak_is_in_what_comes_in_too",
        "_cells/leaky.py",
        "self.leak * jnp.tanh(z[0]),)",
        f"{_STILL}((self.leak - 1) * jnp.tanh(z[0])) + jnp.tanh(z[0]),)",
        "the derivative without the leak",
    ),
    Planted(
        "units that change places are either right or refused",
        SLIPS + "test_units_that_change_places_are_either_right_or_refused",
        "_estimators/local.py",
        "isinstance(layer, KroneckerCell | UnitCell),",
        "isinstance(layer, Cell),",
        "any cell is taken",
    ),
]
