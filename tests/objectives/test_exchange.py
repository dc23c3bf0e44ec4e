"""Exchanges against solving every coreset anew."""

import jax
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.objectives import embeddings
from pbcs_jax.objectives.exchange import best_swap, exchange_samples
from pbcs_jax.objectives.sample_kernel import gather

N, V, RIDGE = 24, 10, 0.1


def exchange(features, y, indices, *, ridge, most, validation):
    data, _ = gather(features, y, validation, 0.0, dual=True)
    return exchange_samples(data, ridge, indices, most)


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
    data, _ = gather(features, y, validation, 0.0, dual=True)
    swapped, before, after = best_swap(data, RIDGE, jax.numpy.array(chosen))
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
