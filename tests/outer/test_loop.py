"""The outer loop, on objectives whose answer is known."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.outer import loop

N = 12
WANTED = jnp.array([1.0] * 4 + [0.0] * 8)


def distance(key, masks):
    """The outer loss is the number of candidates that differ from the wanted ones."""
    losses = jnp.sum((masks - WANTED) ** 2, -1)
    return pbcs.Evaluation(losses, jnp.isfinite(losses), 2 * (masks - WANTED))


def run(evaluate=distance, seed=0, size=4, **options):
    settings = pbcs.Settings(**{"outer_steps": 120, "num_masks": 6, **options})
    state = pbcs.init(jax.random.key(seed), N, size, settings)
    return pbcs.run(state, evaluate, settings)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "pge", "baseline": "none", "num_masks": 16},
        {"estimator": "pge"},
        {"estimator": "gumbel"},
        {"estimator": "hybrid"},
        {"estimator": "hybrid", "path_until": 0.5},
        {"optimizer": "sgd", "learning_rate": 0.05},
        {"optimizer": "normalized_sgd", "learning_rate": 0.2},
        {"optimizer": optax.adam(0.05)},
        {"size_schedule": "cubic"},
        {"schedule": "constant", "clip_norm": 0.0},
        {"settle": 0.1},
    ],
)
def test_every_estimator_and_optimiser_finds_the_wanted_ones(options):
    state, history = run(**options)
    found = pbcs.draw_coreset(jax.random.key(1), state.probabilities, 4)
    np.testing.assert_array_equal(found, np.flatnonzero(WANTED))
    assert history["outer_loss"][-10:].mean() < 0.5 * history["outer_loss"][:10].mean()


def test_settling_decides_where_the_loss_does_not():
    def noise(key, masks):
        losses = jax.random.normal(key, masks.shape[:1])
        return pbcs.Evaluation(losses, jnp.isfinite(losses))

    ends = {}
    for settle in (0.0, 0.2):
        state, history = run(noise, settle=settle, learning_rate=0.01)
        s = state.probabilities
        ends[settle] = float(history["unsettled"][-1])
        assert ends[settle] == pytest.approx(float(jnp.sum(s * (1 - s)) / 4), abs=1e-5)
        assert float(jnp.sum(s)) == pytest.approx(4, abs=0.1)
    assert ends[0.0] > 0.3 and ends[0.2] < 0.05


def test_normalized_sgd_keeps_proportions_at_any_scale():
    gradient = jnp.array([3.0, -4.0, 0.0])
    for scale in (1e-4, 1.0, 1e4):
        settings = pbcs.Settings(optimizer="normalized_sgd", learning_rate=0.5, clip_norm=0.0)
        transformation = settings.transformation()
        update, _ = transformation.update(scale * gradient, transformation.init(gradient))
        np.testing.assert_allclose(update, [-0.3, 0.4, 0.0], rtol=5e-3)


def test_probabilities_stay_in_the_set_at_every_step():
    settings = pbcs.Settings(learning_rate=0.5, outer_steps=40)
    state = pbcs.init(jax.random.key(0), N, 4, settings)
    for _ in range(40):
        state, _ = pbcs.step(state, distance, settings)
        s = state.probabilities
        assert s.min() >= 0 and s.max() <= 1 and s.sum() <= 4 + 1e-5


def test_the_size_shrinks_by_the_cubic_schedule():
    settings = pbcs.Settings(size_schedule="cubic", start_factor=2.0)
    sizes = [float(settings.size_at(p, 10)) for p in (0, 0.16, 0.38, 0.6, 1)]
    assert sizes == pytest.approx([20, 20, 11.25, 10, 10])
    _, history = run(size_schedule="cubic", start_factor=2.5, size=4)
    assert history["size"].max() > 9 and history["size"][-1] <= 4 + 1e-5


def test_steps_one_by_one_are_the_run():
    settings = pbcs.Settings(outer_steps=7, num_masks=3)
    state = pbcs.init(jax.random.key(5), N, 4, settings)
    together, _ = pbcs.run(state, distance, settings)
    for _ in range(7):
        state, _ = pbcs.step(state, distance, settings)
    np.testing.assert_array_equal(state.probabilities, together.probabilities)


def test_a_run_goes_on_from_a_state_to_the_same_bits():
    settings = pbcs.Settings(outer_steps=20, num_masks=3)
    seen = []
    state = pbcs.init(jax.random.key(5), N, 4, settings)
    whole, history = pbcs.run(
        state, distance, settings, lambda s, m: seen.append(jax.tree.map(jnp.copy, s)), 5
    )
    again, rest = pbcs.run(seen[1], distance, settings)
    np.testing.assert_array_equal(whole.probabilities, again.probabilities)
    np.testing.assert_array_equal(history["outer_loss"][10:], rest["outer_loss"])


def test_the_step_is_compiled_once():
    calls = []

    def counted(key, masks):
        calls.append(1)
        return distance(key, masks)

    run(counted, outer_steps=30)
    assert len(calls) == 1


def test_data_inside_a_partial_are_no_constants_of_the_program():
    big = jnp.ones((N, 1000))
    evaluate = jax.tree_util.Partial(lambda data, key, m: distance(key, m * data.mean(1)), big)
    settings = pbcs.Settings(outer_steps=2)
    state = pbcs.init(jax.random.key(0), N, 4, settings)

    text = loop._compiled_step.lower(state, evaluate, settings).as_text()
    signature = text.split("@main(")[1].split(") -> ")[0]
    assert f"tensor<{N}x1000xf32>" in signature


def test_masks_that_failed_are_counted_and_left_out():
    def sometimes(key, masks):
        evaluation = distance(key, masks)
        ok = jnp.arange(masks.shape[0]) > 1
        return evaluation._replace(ok=ok, losses=jnp.where(ok, evaluation.losses, jnp.nan))

    state, history = run(sometimes)
    assert np.all(history["num_ok"] == 4)
    assert np.all(np.isfinite(state.probabilities)) and np.all(np.isfinite(history["outer_loss"]))


def test_a_step_with_no_usable_mask_raises_and_changes_nothing():
    def never(key, masks):
        return pbcs.Evaluation(jnp.full(len(masks), jnp.nan), jnp.ones(len(masks), bool))

    settings = pbcs.Settings(outer_steps=4)
    state = pbcs.init(jax.random.key(0), N, 4, settings)
    with pytest.raises(pbcs.DivergenceError, match="diverged or gave NaN"):
        pbcs.run(state, never, settings)
    with pytest.raises(pbcs.DivergenceError):
        pbcs.step(state, never, settings)
    after, metrics = jax.jit(lambda s: pbcs.step(s, never, settings))(state)
    assert metrics["num_ok"] == 0
    np.testing.assert_array_equal(after.probabilities, state.probabilities)


def test_overflow_is_counted_and_leaves_the_score():
    """A candidate that found no room is scored as not chosen."""
    scored = []

    def first_two_only(key, masks):
        kept = masks * (jnp.cumsum(masks, -1) <= 2)
        return distance(key, kept)._replace(masks=kept)

    def gradient(evaluation, masks, probabilities, progress, state):
        jax.debug.callback(lambda m: scored.append(np.asarray(m)), masks)
        return pbcs.policy_gradient(evaluation.losses, masks, probabilities), state + 1

    settings = pbcs.Settings(
        estimator=pbcs.Estimator(lambda n: jnp.zeros(n), pbcs.sample_masks, gradient, False, 2),
        outer_steps=3,
        num_masks=4,
    )
    state = pbcs.init(jax.random.key(0), N, 6, settings)
    _, history = pbcs.run(state, first_two_only, settings)
    jax.effects_barrier()
    assert history["overflow"].min() > 0
    assert all(m.sum(-1).max() <= 2 for m in scored) and len(scored) == 3


def test_a_start_other_than_uniform():
    start = jnp.linspace(0, 1, N)
    state = pbcs.init(jax.random.key(0), N, 4, probabilities=start)
    np.testing.assert_allclose(state.probabilities, pbcs.project(start, 4))


@pytest.mark.parametrize(
    "options",
    [
        {"num_masks": 1},
        {"num_masks": 0, "baseline": "none"},
        {"outer_steps": -1},
        {"estimator": "best"},
        {"baseline": "mean"},
        {"size_schedule": "linear"},
        {"start_factor": 0.5},
        {"settle": -0.1},
        {"final": "greedy"},
        {"optimizer": "newton"},
        {"learning_rate": -1.0},
    ],
)
def test_bad_settings_are_refused(options):
    with pytest.raises(UserError):
        pbcs.Settings(**options)


@pytest.mark.parametrize("size", [0, -3, N + 1])
def test_bad_sizes_are_refused(size):
    with pytest.raises(UserError, match=str(size)):
        pbcs.init(jax.random.key(0), N, size)


def test_an_objective_without_path_gradients_is_refused_by_those_who_need_them():
    def no_path(key, masks):
        return distance(key, masks)._replace(path_gradients=None)

    with pytest.raises(UserError, match="path"):
        run(no_path, estimator="hybrid")


def test_an_interrupted_run_tells_its_callback_of_all_steps_that_are_done(monkeypatch):
    @contextlib.contextmanager
    def interrupted(*arguments):
        def show(done, *more):
            if done == 15:
                raise KeyboardInterrupt

        yield show

    monkeypatch.setattr(loop.progress, "steps", interrupted)
    settings = pbcs.Settings(outer_steps=40)
    state = pbcs.init(jax.random.key(0), N, 4, settings)
    calls = []
    with pytest.raises(KeyboardInterrupt):
        pbcs.run(state, distance, settings, lambda s, m: calls.append((int(s.step), len(m))))
    assert calls == [(10, 10), (15, 5)]
