"""Errors in what shows where a horizon bites: the arena, the meter for reach, the demo, the follower and the example of rewards."""

from tests.planted.kind import Planted

ARENA, DEMO = "tests/arena/test_arena.py::", "tests/demo/test_demo.py::"
FOLLOWER, REACH = "tests/core/test_follower.py::", "tests/lab/test_reach_and_probe.py::"
EXAMPLE, MAZE = "tests/examples/test_reinforcement_learning.py::", "examples/reinforcement_learning.py"

MORE_OF_THE_ARENA = [
    Planted(
        "whoever meets at a task and a lag has the same first weights",
        ARENA + "test_everyone_starts_with_the_same_weights_and_streams",
        "arena/trial.py",
        "self._model(model_key))",
        "self._model(jax.random.fold_in(model_key, len(self.entrant.label))))",
        "weights that depend on the estimator",
    ),
    Planted(
        "a sentence has the times of the lag that it speaks of",
        ARENA + "test_times_are_those_of_the_lag_that_is_spoken_of",
        "arena/results.py",
        "mine, theirs = _time(ours.milliseconds)",
        "mine, theirs = _time(self.line.milliseconds)",
        "the median over all lags",
    ),
    Planted(
        "rolling TBPTT is there with horizons of 8 to 512",
        ARENA + "test_all_estimators_of_the_registry_are_there_with_every_horizon",
        "arena/entrants.py",
        "range(3, 10)",
        "range(3, 9)",
        "up to 256",
    ),
    Planted(
        "a trial ends early only when all is learned",
        ARENA + "test_a_trial_ends_early_only_when_all_is_learned",
        "arena/trial.py",
        "return len(last) == LAST and all(",
        "return len(last) == LAST and any(",
        "after one good report of the last three",
    ),
    Planted(
        "a trial that is there is not done again",
        ARENA + "test_on_the_command_line",
        "arena/commands.py",
        "known = {results.key(trial) for trial in trials}",
        "known = set()",
        "all are done again",
    ),
    Planted(
        "Ctrl-C keeps what is done, and ends with its exit code",
        ARENA + "test_ctrl_c_keeps_what_is_done",
        "arena/commands.py",
        "    except Stopped:\n        return False",
        "    except Stopped:\n        return True",
        "as if all had been tried",
    ),
    Planted(
        "a damaged result is left alone",
        ARENA + "test_a_damaged_or_foreign_result_is_left_alone",
        "arena/results.py",
        '        raise InputError(\n            f"{path} is no result',
        '        return []\n        raise InputError(\n            f"{path} is no result',
        "it is taken for an empty one and written over",
    ),
    Planted(
        "a budget has all horizons unless somebody says otherwise",
        ARENA + "test_budgets_say_what_they_try",
        "arena/budgets.py",
        'said["horizons"], HORIZONS)',
        'said["horizons"], HORIZONS[:4])',
        "short ones only",
    ),
]

REACHED = [
    Planted(
        "a known lag is found",
        REACH + "test_a_known_lag_is_found[4]",
        "lab/lags.py",
        "far = jax.tree.map(jnp.subtract, whole, total)",
        "far = jax.tree.map(lambda w, s, f: w - s + f, whole, total, found)",
        "a horizon has one step less than it says",
    ),
    Planted(
        "the share of a horizon is what TBPTT's own gradients have",
        REACH + "test_what_a_horizon_has_is_what_tbptt_has",
        "lab/lags.py",
        "shares = 1 - missing.sum(0) / whole.sum()",
        "shares = 1 - (missing / whole[:, None]).mean(0)",
        "a mean of shares, every step with the same weight",
    ),
    Planted(
        "a network that was trained to copy over 12 steps looks back 13",
        REACH + "test_a_network_that_was_trained_to_copy_looks_back_as_far_as_it_must",
        "lab/lags.py",
        "inside = j <= t",
        "inside = j <= jnp.minimum(t, 9)",
        "nothing older than ten steps is looked at",
    ),
    Planted(
        "probes find a known lag",
        REACH + "test_probes_find_a_known_lag[4]",
        "lab/reached.py",
        "return int(self.at[inside[0]])",
        "return int(inside[0]) + 1",
        "the place in the list for the lag",
    ),
]

DEMO_SAYS = [
    Planted(
        "one rolling horizon is below the gap, one above it",
        DEMO + "test_who_races_is_what_is_promised",
        "_demo/cue.py",
        "below, above = self.gap * 4 // 5, self.gap_to + 8",
        "below, above = self.gap * 4 // 5, self.gap_to - 8",
        "the longer one ends within the gaps",
    ),
    Planted(
        "a seed answers if nothing is wrong in its last two reports",
        DEMO + "test_a_seed_answers_when_nothing_was_wrong_for_two_reports",
        "_demo/cue.py",
        "if all(good[-2:]) else None",
        "if good[-1] else None",
        "in the last one",
    ),
    Planted(
        "every sentence names updates, reach, time and seeds",
        DEMO + "test_every_comparison_names_updates_reach_time_and_seeds",
        "_demo/cue.py",
        "{result['milliseconds_a_step']:.2f} ms a step.",
        "{result['milliseconds_a_step']:.2f}.",
        "no word of what the time is of",
    ),
    Planted(
        "what was not shown is not said",
        DEMO + "test_a_failure_is_said_as_plainly",
        "_demo/cue.py",
        "if ours > max(_count(same), _count(below))",
        "if ours >= max(_count(same), _count(below))",
        "credit is claimed where nobody has learned",
    ),
    Planted(
        "all have the same streams",
        DEMO + "test_a_demo_leaves_a_picture_and_its_figures",
        "_demo/race.py",
        "start(batch=self.contest.batch, key=task_key)",
        "start(batch=self.contest.batch, key=jax.random.fold_in(task_key, len(self.entrant.label)))",
        "streams that depend on the estimator",
    ),
    Planted(
        "copy says how often each side updates",
        DEMO + "test_copy_has_a_rolling_line_and_says_what_each_side_had",
        "_demo/copy.py",
        'if result["stride"] == 1 else',
        'if result["stride"] else',
        "one update a step is said of chunks too",
    ),
    Planted(
        "what cannot be shown is refused in words that fit",
        DEMO + "test_what_cannot_be_shown_is_refused",
        "_demo/cue.py",
        'f"--gap-to {gap_to} is less than --gap {gap}',
        'f"--gap-to {gap} is less than --gap {gap_to}',
        "the two numbers exchanged",
    ),
]

FOLLOWED = [
    Planted(
        "the mean over streams is the learner's gradient, resets included",
        FOLLOWER + "test_streams_and_heads_add_up_to_the_learners_gradient[estimator0-lstm]",
        "_core/follower.py",
        "linearize_all(cell, state.hidden, x, reset)",
        "linearize_all(cell, state.hidden, x, jnp.zeros_like(reset))",
        "a reset is not heard",
    ),
    Planted(
        "a follower's folds draw the learner's numbers",
        FOLLOWER + "test_streams_and_heads_add_up_to_the_learners_gradient[estimator4-lstm]",
        "_core/follower.py",
        "(state.keys, state.time)",
        "(state.keys, jnp.uint32(0))",
        "the same numbers at every step",
    ),
    Planted(
        "weights in a cell's output count too",
        FOLLOWER + "test_weights_in_the_output_count_too",
        "_core/follower.py",
        "return found if beside is None else jax.tree.map(jnp.add, found, beside)",
        "return found",
        "they are left out",
    ),
    Planted(
        "chunks, which have no gradient at every step, are refused",
        FOLLOWER + "test_what_cannot_be_is_refused",
        "_core/follower.py",
        "estimator.past.stride == 1,",
        "estimator.past.stride >= 1,",
        "they are taken",
    ),
]

REWARDS = [
    Planted(
        "actor, critic and entropy have the gradients of the unrolled network from one influence",
        EXAMPLE + "test_actor_and_critic_have_their_gradients_from_one_influence[LSTM]",
        MAZE,
        "cells = jax.vmap(lambda delta: self.follower.gradient(agent.cell, followed, delta))(many)",
        "cells = jax.vmap(lambda delta: self.follower.gradient(agent.cell, followed, delta))(many[::-1])",
        "the δ of actor and entropy exchanged",
    ),
    Planted(
        "the cue is shown at the start only",
        EXAMPLE + "test_the_rules_of_the_maze",
        MAZE,
        "start, end = world.age == 0, world.at == self.length",
        "start, end = world.age >= 0, world.at == self.length",
        "it is shown all the time",
    ),
    Planted(
        "a perfect critic sums the discounted rewards to come",
        EXAMPLE + "test_a_perfect_critic_of_the_conditioning_sums_what_comes",
        MAZE,
        "jnp.maximum(left - 1, 0)",
        "jnp.maximum(left, 0)",
        "discounted once too often",
    ),
    Planted(
        "the unit of a critic's error is that of saying nothing",
        EXAMPLE + "test_who_says_nothing_of_the_conditioning_has_the_error_that_it_is_measured_by",
        MAZE,
        "(worlds) ** 2).mean()) / 2",
        "(worlds) ** 2).mean())",
        "as if both stimuli were rewarded",
    ),
    Planted(
        "surprises add up to the return: nothing comes after an episode's last reward",
        EXAMPLE + "test_surprises_add_up_to_the_return_and_traces_end_with_an_episode",
        MAZE,
        "after = jnp.where(run.new, 0.0, _said(run.agent, h))",
        "after = _said(run.agent, h)",
        "the next episode's value is counted",
    ),
    Planted(
        "traces end with an episode",
        EXAMPLE + "test_surprises_add_up_to_the_return_and_traces_end_with_an_episode",
        MAZE,
        "keep = jnp.where(run.new, 0.0, DISCOUNT * self.decay)",
        "keep = jnp.full(BATCH, DISCOUNT * self.decay)",
        "they outlive it",
    ),
    Planted(
        "exact gradients teach units to hold the cue",
        EXAMPLE + "test_it_learns_to_turn_where_the_cue_said",
        MAZE,
        "followed, h = self.follower.step(run.agent.cell, run.followed, x, run.new)",
        "followed, h = self.follower.step(run.agent.cell, run.followed, x, run.new | True)",
        "every step is the first of its stream",
    ),
]
