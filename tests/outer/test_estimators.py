"""Each estimator's mean against the exact gradient, found by enumerating all masks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.outer import estimators

N = 8
S = jnp.array([0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 0.95, 0.3])
EVERY_MASK = jnp.array(list(itertools.product([0.0, 1.0], repeat=N)))


def quadratic(masks):
    """A loss with interactions, `[M, N] -> [M]`, and smooth between 0 and 1."""
    rng = np.random.default_rng(0)
    pairs, single = rng.normal(size=(N, N)), rng.normal(size=N)
    return jnp.einsum("mi,ij,mj->m", masks, pairs * 0.2, masks) + masks @ single + 3.0


def error_rate(masks):
    """A loss without a gradient: how often a threshold on the sum is wrong."""
    return (jnp.abs(masks.sum(-1) - 4) > 1).astype(jnp.float32)


def linear(masks):
    return masks @ jnp.arange(1.0, N + 1) + 2.0


def exact_gradient(loss):
    expected = lambda s: jnp.exp(pbcs.mask_log_prob(EVERY_MASK, s)) @ loss(EVERY_MASK)  # noqa: E731
    return jax.grad(expected)(S)


def estimates(estimator, loss, num_masks=4, repeats=40_000, differentiable=True):
    """`[repeats, N]` independent gradient estimates."""

    @jax.jit
    @jax.vmap
    def one(key):
        masks = estimator.sample(key, S, num_masks)
        path = jax.vmap(jax.grad(lambda m: loss(m[None])[0]))(masks) if differentiable else None
        evaluation = pbcs.Evaluation(loss(masks), jnp.ones(num_masks, bool), path)
        return estimator.gradient(evaluation, masks, S, jnp.zeros(()), ())[0]

    return np.asarray(one(jax.random.split(jax.random.key(1), repeats)), np.float64)


@pytest.mark.parametrize("baseline", estimators.VARIANCE_BASELINES)
@pytest.mark.parametrize("loss", [quadratic, error_rate])
def test_policy_gradient_is_unbiased(baseline, loss):
    estimator = estimators.create("pge", baseline=baseline)
    found = estimates(estimator, loss, differentiable=False)
    deviation = (found.mean(0) - exact_gradient(loss)) / (found.std(0) / np.sqrt(len(found)))
    assert np.abs(deviation).max() < 4


def test_masks_of_exactly_k_have_an_unbiased_gradient_with_less_variance():
    """Of the loss that masks of that size have, the sum of s being 4, to the nearest."""
    of_size = EVERY_MASK[EVERY_MASK.sum(1) == round(float(S.sum()))]

    def expected(s):
        return jax.nn.softmax(pbcs.mask_log_prob(of_size, s)) @ quadratic(of_size)

    exact = jax.grad(expected)(S)
    estimator = estimators.create("exact_k")
    found = estimates(estimator, quadratic, repeats=10_000, differentiable=False)
    deviation = (found.mean(0) - exact) / (found.std(0) / np.sqrt(len(found)))
    assert np.abs(deviation).max() < 4
    free = estimates(estimators.create("pge"), quadratic, repeats=5000, differentiable=False)
    assert found.var(0).sum() < 0.7 * free.var(0).sum()


def test_many_candidates_get_masks_of_any_size(monkeypatch):
    monkeypatch.setattr(estimators, "MOST_OF_SIZE", N - 1)
    masks = estimators.create("exact_k").sample(jax.random.key(0), S, 5)
    np.testing.assert_array_equal(masks, pbcs.sample_masks(jax.random.key(0), S, 5))


@pytest.mark.parametrize("num_masks", [2, 8])
def test_leave_one_out_has_less_variance(num_masks):
    plain, less = (
        estimates(estimators.create("pge", baseline=b), quadratic, num_masks, 5000).var(0).sum()
        for b in ("none", "leave_one_out")
    )
    assert less < 0.5 * plain


def test_gumbel_approaches_the_exact_gradient_as_the_temperature_falls():
    exact = exact_gradient(linear)
    errors = []
    for temperature in (1.0, 0.3, 0.1):
        found = estimates(estimators.create("gumbel", temperature=temperature), linear)
        errors.append(np.linalg.norm(found.mean(0) - exact) / np.linalg.norm(exact))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


def test_gumbel_points_the_right_way_with_interactions():
    exact = exact_gradient(quadratic)
    mean = estimates(estimators.create("gumbel", temperature=0.3), quadratic).mean(0)
    assert mean @ exact / np.linalg.norm(mean) / np.linalg.norm(exact) > 0.9


def test_relaxed_masks_are_above_one_half_as_often_as_hard_ones_are_one():
    s = jnp.concatenate([S, jnp.array([0.0, 1.0])])
    relaxed = np.asarray(estimators.sample_relaxed_masks(jax.random.key(0), s, 20_000, 0.5))
    error = 4 * np.sqrt(s * (1 - s) / 20_000)
    assert np.all(np.abs((relaxed > 0.5).mean(0) - s) <= error)
    assert np.all(relaxed[:, -2] == 0) and np.all(relaxed[:, -1] == 1)
    assert np.mean((relaxed[:, 2] > 0.01) & (relaxed[:, 2] < 0.99)) > 0.5  # relaxed indeed


def test_hybrid_is_the_policy_gradient_plus_a_path_of_its_length():
    """Unbiased part exact, biased part of equal norm in the path's direction."""
    masks = pbcs.sample_masks(jax.random.key(0), S, 6)
    path = jax.vmap(jax.grad(lambda m: quadratic(m[None])[0]))(masks)
    ok = jnp.ones(6, bool)
    evaluation = pbcs.Evaluation(quadratic(masks), ok, path)
    policy = pbcs.policy_gradient(evaluation.losses, masks, S)
    added = estimators.create("hybrid").gradient(evaluation, masks, S, 0.0, ())[0] - policy
    mean_path = path.mean(0)
    np.testing.assert_allclose(
        added, mean_path / jnp.linalg.norm(mean_path) * jnp.linalg.norm(policy), rtol=1e-4
    )


def test_hybrid_mean_points_the_right_way_and_ends_unbiased():
    exact = exact_gradient(quadratic)
    mean = estimates(estimators.create("hybrid"), quadratic).mean(0)
    assert mean @ exact / np.linalg.norm(mean) / np.linalg.norm(exact) > 0.9
    # Once annealed away, it is the policy gradient to the bit.
    annealed = estimators.create("hybrid", path_until=0.5)
    masks = pbcs.sample_masks(jax.random.key(0), S, 6)
    path = jnp.ones((6, N))
    evaluation = pbcs.Evaluation(quadratic(masks), jnp.ones(6, bool), path)
    late = annealed.gradient(evaluation, masks, S, jnp.asarray(0.6), ())[0]
    np.testing.assert_array_equal(late, pbcs.policy_gradient(evaluation.losses, masks, S))


@pytest.mark.parametrize("name", ["pge", "gumbel", "hybrid"])
def test_failed_masks_take_no_part(name):
    estimator = estimators.create(name)
    masks = estimator.sample(jax.random.key(3), S, 5)
    path = jax.random.normal(jax.random.key(4), (5, N))
    losses = quadratic(masks)
    ok = jnp.array([True, False, True, True, False])
    broken = pbcs.Evaluation(
        jnp.where(ok, losses, jnp.nan), ok, jnp.where(ok[:, None], path, jnp.nan)
    )
    kept = jnp.array([0, 2, 3])
    without = pbcs.Evaluation(losses[kept], jnp.ones(3, bool), path[kept])
    np.testing.assert_allclose(
        estimator.gradient(broken, masks, S, 0.0, ())[0],
        estimator.gradient(without, masks[kept], S, 0.0, ())[0],
        rtol=1e-5,
    )


def test_a_candidate_that_all_masks_agree_on_gets_exactly_nothing():
    """Adam would turn a rounding error into a full step."""
    masks = pbcs.sample_masks(jax.random.key(0), S, 5).at[:, 2].set(0).at[:, 5].set(1)
    found = pbcs.policy_gradient(quadratic(masks), masks, S)
    assert found[2] == 0 and found[5] == 0 and jnp.count_nonzero(found) > 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "reinforce"},
        {"name": "pge", "baseline": "mean"},
        {"name": "gumbel", "temperature": 0.0},
        {"name": "hybrid", "path_until": 0.0},
    ],
)
def test_bad_settings_are_refused(arguments):
    with pytest.raises(UserError):
        estimators.create(**arguments)
