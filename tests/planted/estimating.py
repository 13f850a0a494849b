"""Random estimates: UORO, KF backwards, ARTBP, DNI, KeRNL, rounding."""

from tests.planted.kind import Planted

UORO = "tests/estimators/test_uoro.py::"
ARTBP = "tests/estimators/test_artbp.py::"
DNI = "tests/estimators/test_dni.py::"
KERNL = "tests/estimators/test_kernl.py::"
REVERSE = "tests/estimators/test_reverse_kf.py::"
SLIPS = "tests/estimators/test_slips.py::"
ROUNDED = "tests/estimators/test_rounded.py::"

RANDOM = [
    Planted(
        "R-KF: the mean over all signs of two steps is the influence",
        REVERSE + "test_the_mean_over_all_signs_is_the_influence[rhn]",
        "_estimators/reverse_kf.py",
        "(jnp.outer(column, vector), signs), (one, one), norms)",
        "(jnp.outer(column, vector), jnp.abs(signs)), (one, one), norms)",
        "one factor without its signs",
    ),
    Planted(
        "the same",
        REVERSE + "test_the_mean_over_all_signs_is_the_influence[rhn]",
        "_estimators/reverse_kf.py",
        "self._absorbed(found.carry(b, e.rows), a, terms, key)",
        "self._absorbed(b, a, terms, key)",
        "B without H",
    ),
    Planted(
        "UORO with a scale a unit: the mean over all signs of a step is exact",
        UORO + "test_the_mean_over_all_signs_is_exact[rhn]",
        "_estimators/uoro.py",
        "1 / jnp.where(scale == 0, 1, scale)",
        "jnp.where(scale == 0, 1, scale)",
        "w in both factors, not 1/w in one",
    ),
    Planted(
        "its second moment is never larger than with one scale, and smaller where units differ",
        UORO + "test_the_second_moment_of_a_step_is_never_larger[rnn]",
        "_estimators/uoro.py",
        "return jnp.sqrt(immediate_norms(",
        "return (immediate_norms(",
        "w = ‖F‖ in the place of its root: unbiased too",
    ),
    Planted(
        "half of the units saturated: less than 0.7 of the variance",
        UORO + "test_saturated_units_inject_nothing",
        "_estimators/uoro.py",
        "if self.scales == ROWS and isinstance(memory, KroneckerMemory):",
        "if self.scales is None and isinstance(memory, KroneckerMemory):",
        "one scale for all",
    ),
    Planted(
        "a unit without immediate influence divides nothing",
        UORO + "test_a_unit_whose_row_is_exactly_zero_divides_nothing",
        "_estimators/uoro.py",
        "jnp.where(scale == 0, 0, 1 / jnp.where(scale == 0, 1, scale))",
        "1 / scale",
        "1/0",
    ),
    Planted(
        "KF with a saturated unit, all signs enumerated; a public version has ĥ back from F/D",
        SLIPS + "test_a_saturated_unit_does_not_bias_kf",
        "_estimators/kf.py",
        "self._mix(u, a, terms.vectors[use],",
        "self._mix(u, a, terms.vectors[use] * (memory.diagonals[0, 0] > 1e-12).mean(dtype=u.dtype),",
        "ĥ as the mean over units of F/D",
    ),
]

CUTS = [
    Planted(
        "ARTBP: all patterns of cuts with their chances sum to the gradient; c depends on τ",
        ARTBP + "test_all_patterns_of_cuts[lstm-paper]",
        "_pasts/random_horizon.py",
        "factors[jnp.maximum(lengths - i - 1, 0)][:, None] * delta",
        "factors[jnp.maximum(lengths - i, 0)][:, None] * delta",
        "the factor of the step after",
    ),
    Planted(
        "the same with constant c",
        ARTBP + "test_all_patterns_of_cuts[lstm-constant]",
        "_pasts/random_horizon.py",
        "factors[jnp.maximum(lengths - i - 1, 0)][:, None] * delta",
        "delta",
        "no factors",
    ),
    Planted(
        "the factor stands inside the recursion",
        ARTBP + "test_all_patterns_of_cuts[lstm-paper]",
        "_pasts/random_horizon.py",
        "slots.slot_of(track, i)] + crossed, 0)",
        "slots.slot_of(track, i)] * factors[jnp.maximum(lengths - i - 1, 0)][:, None] + crossed, 0)",
        "a loss of its own step is weighed too",
    ),
    Planted(
        "rolling: all horizons with their chances sum to each step's gradient",
        ARTBP + "test_all_horizons_of_the_rolling_form[lstm]",
        "_pasts/random_horizon.py",
        "jnp.where(i == 0, 1, factors[jnp.maximum(i - 1, 0)]) * delta",
        "jnp.where(i == 0, 1, factors[i]) * delta",
        "the factor of the step after",
    ),
    Planted(
        "what is drawn has the chances that the weights undo",
        ARTBP + "test_the_draws_have_the_chances_that_the_weights_undo",
        "_pasts/random_horizon.py",
        "self.chances.survival()[1:-1]",
        "self.chances.survival()[:-2]",
        "horizons are a step too long",
    ),
    Planted(
        "segments have the mean length that is asked for, and a known mass beyond the cap",
        ARTBP + "test_the_mean_length_and_the_mass_beyond_the_cap",
        "_pasts/random_horizon.py",
        "((self.alpha - 2) * self.mean + steps)",
        "((self.alpha - 1) * self.mean + steps)",
        "α − 1 in the place of α − 2",
    ),
    Planted(
        "a segment teaches though its last step has no target",
        ARTBP + "test_a_segment_teaches_though_its_last_step_has_no_target",
        "_pasts/random_horizon.py",
        "return seen.target | jnp.any(ending & jnp.any(track.deltas != 0, axis=2))",
        "return seen.target",
        "only the last step's target counts",
    ),
]

CRITICS = [
    Planted(
        "DNI with the true cotangents is the full gradient; a public version scales them by 0.1",
        DNI + "test_with_the_true_cotangents_it_is_the_full_gradient",
        "_pasts/foretold.py",
        "seen.delta + foretold)",
        "seen.delta + 0.1 * foretold)",
        "times 0.1",
    ),
    Planted(
        "an untrained critic is TBPTT, bit for bit",
        DNI + "test_a_critic_that_is_never_fitted_is_tbptt_bit_for_bit",
        "_pasts/foretold.py",
        "(jnp.zeros((state.size + 1, state.size)",
        "(jnp.full((state.size + 1, state.size), 0.01",
        "it does not start at zero",
    ),
    Planted(
        "on a linear network the critic becomes the solution of the Lyapunov equation",
        DNI + "test_the_fixed_point_on_a_linear_network",
        "_pasts/foretold.py",
        "self.fitted(track.shared, track.streams, streams * left)",
        "self.fitted(track.shared, track.streams, left)",
        "taught the mean over streams and asked for each",
    ),
    Planted(
        "half-open: the exit's own loss is not the critic's",
        DNI + "test_the_fixed_point_on_a_linear_network",
        "_pasts/foretold.py",
        "seen.delta + foretold)",
        "2 * seen.delta + foretold)",
        "it is counted twice",
    ),
    Planted(
        "the critic is asked where a window ends and taught where the next one begins",
        DNI + "test_the_fixed_point_on_a_linear_network",
        "_pasts/foretold.py",
        "(critic, hidden))",
        "(critic, track.streams))",
        "always taught at the very first state",
    ),
    Planted(
        "behind a reset there is nothing to foretell",
        DNI + "test_a_reset_leaves_nothing_to_foretell",
        "_core/linearize.py",
        "return (memory.alive[:, None, None] * left).reshape(-1, s * n), columns",
        "return left.reshape(-1, s * n), columns",
        "δ crosses a reset",
    ),
    Planted(
        "KeRNL with a frozen kernel on leaky units is their own decay, as RFLO",
        KERNL + "test_frozen_on_leaky_units_it_keeps_the_direct_path_only",
        "_estimators/kernl.py",
        "traces = kept[None] * known.traces + new",
        "traces = kept[None] * (known.traces + new)",
        "what comes in decays at once",
    ),
    Planted(
        "on linear units it learns β = 1 and their decays; a public version filters noise a step early",
        KERNL + "test_on_linear_units_it_learns_their_decay",
        "_estimators/kernl.py",
        "known.spread @ filtered - (noisy - quiet) / self.noise",
        "known.spread @ filtered - (noisy - self.noise * noise - quiet) / self.noise",
        "noise is in the filter before it is in the network",
    ),
    Planted(
        "the same",
        KERNL + "test_on_linear_units_it_learns_their_decay",
        "_estimators/kernl.py",
        "known.decays - self.rate * (error @ known.spread) * slopes",
        "known.decays + self.rate * (error @ known.spread) * slopes",
        "κ climbs",
    ),
]

NARROW = [
    Planted(
        "a number rounded at random is that number in the mean: all outcomes, each once",
        ROUNDED + "test_all_outcomes_of_a_rounding_have_the_number_for_their_mean",
        "_core/rounding.py",
        "noise >> (32 - dropped)",
        "noise >> (33 - dropped)",
        "half of the noise: numbers become smaller",
    ),
    Planted(
        "neighbours are rounded each for itself",
        ROUNDED + "test_draws_have_the_number_for_their_mean[float32]",
        "_core/rounding.py",
        "places * jnp.uint32(_STEP) + first",
        "places * jnp.uint32(0) + first",
        "one random number for the whole array",
    ),
    Planted(
        "an influence kept in bfloat16 is right in the mean",
        ROUNDED + "test_the_influence_is_right_in_the_mean[ok-window]",
        "_core/rounding.py",
        "bits = jax.lax.bitcast_convert_type(x, whole) + noise",
        "bits = jax.lax.bitcast_convert_type(x, whole) + 0 * noise",
        "digits are dropped, not rounded",
    ),
    Planted(
        "what comes in small parts is not lost",
        ROUNDED + "test_what_comes_in_small_parts_is_not_lost",
        "_core/rounded_influence.py",
        "rounded_at_random(a, b.dtype, k)",
        "a.astype(b.dtype)",
        "rounding to the nearest",
    ),
]
