"""Exchanges against solving every coreset anew."""

import jax
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.objectives import embeddings
from pbcs_jax.objectives.exchange import Learner, Outer, best_swap, exchange_samples
from pbcs_jax.objectives.ridge import encode, products

N, V, RIDGE = 24, 10, 0.1


def exchange(features, y, indices, *, ridge, most, validation):
    learner, data = problem(features, y, validation, ridge)
    return exchange_samples((learner,), data, indices, most)[0]


def problem(features, y, validation=None, ridge=RIDGE, share=1.0):
    outer, labels = (features, y) if validation is None else validation
    targets = encode(jax.numpy.concatenate([y, labels]))
    weights = jax.numpy.full(len(labels), 1 / len(labels))
    free = jax.numpy.ones(len(y), bool), jax.numpy.zeros(len(y), int)
    data = Outer(targets[: len(y)], targets[len(y) :], weights, *free)
    return Learner(jax.numpy.asarray(features), jax.numpy.asarray(outer), ridge, share), data


def make(classes=3, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N + V, 40)).astype(np.float32) / 6
    y = rng.integers(0, classes, N + V)
    y[:classes] = np.arange(classes)
    return features[:N], y[:N], (features[N:], y[N:])


def outer_loss(features, y, validation, share, chosen):
    """Ridge regression written out in float64."""
    x = np.concatenate([features, validation[0]]).astype(np.float64)
    labels = np.concatenate([y, validation[1]])
    targets = np.eye(labels.max() + 1)[labels] - 1 / (labels.max() + 1)
    phi = x[list(chosen)]
    dual = np.linalg.solve(phi @ phi.T + RIDGE * np.eye(len(phi)), targets[list(chosen)])
    errors = np.sum((x @ phi.T @ dual - targets) ** 2, axis=1)
    return share * errors[:N].mean() + (1 - share) * errors[N:].mean()


@pytest.mark.parametrize("seed", range(4))
def test_a_swap_is_the_one_that_trying_all_would_find(seed):
    features, y, validation = make(seed=seed)
    chosen = list(range(3, 9))

    def loss(c):
        return outer_loss(features, y, validation, 0.0, c)

    leaves = min(chosen, key=lambda i: loss([c for c in chosen if c != i]))
    rest = [c for c in chosen if c != leaves]
    comes = min((j for j in range(N) if j not in rest), key=lambda j: loss([*rest, j]))
    learner, data = problem(features, y, validation)
    cross, near = learner.outer @ learner.rows.T, learner.rows[np.array(chosen)] @ learner.rows.T
    found = best_swap([learner], [cross], [near], data, jax.numpy.array(chosen))
    swapped, _, before, after = found
    assert sorted(swapped.tolist()) == sorted([*rest, comes])
    assert float(before) == pytest.approx(loss(chosen), rel=1e-4)
    assert float(after) == pytest.approx(loss([*rest, comes]), rel=1e-4)


def test_exchanges_end_where_no_swap_helps():
    features, y, validation = make()
    start = np.arange(5)
    problem = {"ridge": RIDGE, "validation": validation}
    found = exchange(features, y, start, most=100, **problem)
    assert len(set(found.tolist())) == 5 and found.tolist() == sorted(found.tolist())
    losses = [outer_loss(features, y, validation, 0.0, c) for c in (start, found)]
    assert losses[1] < 0.95 * losses[0]
    np.testing.assert_array_equal(exchange(features, y, found, most=100, **problem), found)
    once = exchange(features, y, start, most=1, **problem)
    assert len(set(once) - set(start)) == 1


def test_everything_chosen_and_the_same_sample_twice():
    features, y, validation = make()
    everything = np.arange(N)
    kept = exchange(features, y, everything, ridge=RIDGE, most=10, validation=validation)
    np.testing.assert_array_equal(kept, everything)
    features[7] = features[3]
    found = exchange(features, y, np.arange(8), ridge=RIDGE, most=50, validation=validation)
    assert len(set(found.tolist())) == 8


def test_they_follow_the_search_and_lower_its_loss():
    features, y, _ = make()
    results = [
        pbcs.select_coreset(
            jax.random.key(0),
            features,
            y,
            None,
            5,
            objective=pbcs.Kernel(ridge=RIDGE, exchanges=exchanges),
            outer_steps=5,
        )
        for exchanges in (0, 50)
    ]
    rows = np.asarray(embeddings.normalise(features)[0])
    empty = (rows[:1], y[:1])
    losses = [outer_loss(rows, y, empty, 1.0, r.indices) for r in results]
    assert losses[1] < losses[0]
    np.testing.assert_array_equal(results[0].probabilities, results[1].probabilities)
    with pytest.raises(UserError, match="max_ratio"):
        pbcs.select_coreset(
            jax.random.key(0),
            features,
            y,
            None,
            5,
            objective=pbcs.Kernel(exchanges=1),
            max_ratio=2.0,
        )
    with pytest.raises(UserError, match="exchanges is -1"):
        pbcs.Kernel(exchanges=-1)


def test_a_learner_without_a_share_changes_nothing_and_patience_helps():
    features, y, validation = make()
    start = np.array([0, 3, 6, 9, 12])
    learner, data = problem(features, y, validation)
    idle = Learner(learner.rows[:, :2], learner.outer[:, :2], 1.0, 0.0, 2.0)
    alone, loss = exchange_samples((learner,), data, start, 50)
    beside, _ = exchange_samples((learner, idle), data, start, 50)
    np.testing.assert_array_equal(alone, beside)
    _, patient = exchange_samples((learner,), data, start, 50, patience=5)
    assert patient <= loss * (1 + 1e-6)


def test_swaps_of_a_gaussian_kernel_are_those_that_trying_all_would_find():
    features, y, validation = make()
    learner, data = problem(features, y, validation)
    learner = learner._replace(width=2.0)
    chosen = [0, 3, 6, 9, 12]
    cross = products(learner.outer, learner.rows, 2.0)
    near = products(learner.rows[np.array(chosen)], learner.rows, 2.0)
    _, _, before, after = best_swap([learner], [cross], [near], data, jax.numpy.array(chosen))

    def loss(indices):
        gram = np.asarray(products(learner.rows, learner.rows, 2.0), np.float64)
        own = gram[np.ix_(indices, indices)] + RIDGE * np.eye(len(indices))
        weights = np.linalg.solve(own, np.asarray(data.targets)[indices])
        missing = np.asarray(cross)[:, indices] @ weights - np.asarray(data.outer_targets)
        return np.mean(np.sum(missing**2, axis=1))

    leaves = min(chosen, key=lambda i: loss([c for c in chosen if c != i]))
    rest = [c for c in chosen if c != leaves]
    best = min(loss([*rest, j]) for j in range(N) if j not in rest)
    assert float(before) == pytest.approx(loss(chosen), rel=1e-4)
    assert float(after) == pytest.approx(best, rel=1e-4)
