"""PBCS as a pure function: weights, validation data, orders."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.objectives.embeddings import normalise
from pbcs_jax.objectives.sample_kernel import Kernel, gather
from pbcs_jax.outer.settings import Settings
from pbcs_jax.replay import MergeReduce, by_kernel
from pbcs_jax.replay.kernel import in_order, probabilities


def clusters(n, classes, seed=0, spread=0.5):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = 2 * rng.normal(size=(classes, 8))
    return jnp.asarray(centres[y] + spread * rng.normal(size=(n, 8)), jnp.float32), jnp.asarray(y)


def loss(rows, y, weights, chosen, ridge, classes):
    """The objective, written out."""
    rows, targets = np.asarray(rows), np.eye(classes)[np.asarray(y)] - 1 / classes
    own = rows[chosen]
    fitted = np.linalg.solve(own.T @ own + ridge * np.eye(rows.shape[1]), own.T @ targets[chosen])
    share = np.asarray(weights) / np.sum(weights)
    return share @ np.sum((rows @ fitted - targets) ** 2, axis=1)


def test_it_reduces_to_nearly_the_best_of_all_subsets():
    x, y = clusters(16, 3)
    weights = jnp.where(jnp.arange(16) < 8, 1.0, 3.0)
    (rows,) = normalise(x)
    chosen = by_kernel(3)(jax.random.key(0), x, y, weights, 3)
    of = [loss(rows, y, weights, list(s), 0.1, 3) for s in itertools.combinations(range(16), 3)]
    found = loss(rows, y, weights, np.asarray(chosen), 0.1, 3)
    assert np.mean(np.array(of) < found - 1e-6) < 0.01  # among the best hundredth


def test_a_weight_counts_as_so_many_samples():
    x, y = clusters(9, 3)
    (rows,) = normalise(x)
    weights = jnp.array([3.0, 1, 1, 2, 1, 1, 1, 1, 1])
    many = jnp.repeat(jnp.arange(9), weights.astype(int), total_repeat_length=12)
    data = gather(rows, y, None, 0.0, weights, 3)
    repeated = gather(rows[many], y[many], None, 0.0)
    outer = jax.ops.segment_sum(repeated.weights, many, 9)
    np.testing.assert_allclose(data.weights, outer, rtol=1e-6)
    plain = gather(rows, y, None, 0.0)
    np.testing.assert_array_equal(plain.weights, np.full(9, 1 / 9, np.float32))


def test_with_validation_data_wrong_labels_leave_even_a_large_coreset():
    x, y = clusters(60, 3, spread=0.8)
    noisy = jnp.where(jnp.arange(60) % 5 == 0, (y + 1) % 3, y)
    held_out = clusters(30, 3, seed=0, spread=0.8)
    rows, outer = normalise(x, held_out[0])
    kernel = Kernel(ridge=1.0, candidate_weight=3.0)
    settings = Settings(num_masks=8, outer_steps=60, learning_rate=0.1, estimator="hybrid")
    s = probabilities(
        *(jax.random.key(0), rows, noisy, None, (outer, held_out[1]), 40),
        **{"kernel": kernel, "settings": settings, "classes": 3},
    )
    chosen = np.argsort(-np.asarray(s))[:40]
    wrong = np.mean(np.asarray(noisy != y)[chosen])
    assert np.mean(np.asarray(noisy != y)) == 0.2 and wrong < 0.08


def left_open(rows, y, weights, chosen, ridge, classes):
    """The share of the targets' squares that is left if the outputs may be scaled."""
    rows, targets = np.asarray(rows), np.eye(classes)[np.asarray(y)] - 1 / classes
    own = rows[chosen]
    outputs = rows @ np.linalg.solve(
        own.T @ own + ridge * np.eye(len(rows.T)), own.T @ targets[chosen]
    )
    share = np.asarray(weights)[:, None] / np.sum(weights)
    match = np.sum(share * outputs * targets)
    return 1 - match**2 / np.sum(share * outputs**2) / np.sum(share * targets**2)


def test_prefixes_of_an_order_are_coresets():
    x, y = clusters(80, 4, spread=1.0)
    (rows,) = normalise(x)
    weights = jnp.ones(80).at[:8].set(0.0).at[8:20].set(2.0)
    order = np.asarray(in_order(rows, y, weights, 20, ridge=0.1, classes=4))
    assert len(set(order.tolist())) == 20 and order.min() >= 8
    assert sorted(np.asarray(y)[order[:4]].tolist()) == [0, 1, 2, 3]
    rng = np.random.default_rng(0)
    for size in (4, 8, 14, 20):
        drawn = [rng.choice(np.arange(8, 80), size, replace=False) for _ in range(50)]
        best = min(left_open(rows, y, weights, d, 0.1, 4) for d in drawn)
        assert left_open(rows, y, weights, order[:size], 0.1, 4) < best


def test_each_of_an_order_is_the_best_addition_of_its_turn():
    x, y = clusters(40, 4, spread=1.0)
    (rows,) = normalise(x)
    weights = jnp.ones(40).at[:20].set(3.0)
    order = np.asarray(in_order(rows, y, weights, 12, ridge=0.1, classes=4)).tolist()
    for k in range(12):
        before, turns = order[:k], np.bincount(np.asarray(y)[order[:k]], minlength=4)
        may = [j for j in range(40) if j not in before and turns[int(y[j])] == turns.min()]
        of = {j: left_open(rows, y, weights, [*before, j], 0.1, 4) for j in may}
        assert of[order[k]] <= min(of.values()) + 1e-5


@pytest.mark.parametrize("streams", [3])
def test_several_streams_go_side_by_side(streams):
    memory = MergeReduce(2, 3, by_kernel(3, exchanges=0))
    x, y = clusters(18, 3)
    chunks = x.reshape(3, 6, 8), y.reshape(3, 6)

    def fed(key):
        def one(state, given):
            number, chunk, labels = given
            return memory.add(jax.random.fold_in(key, number), state, chunk, labels), None

        state = memory.init(chunks[0][0], chunks[1][0])
        return memory.rows(jax.lax.scan(one, state, (jnp.arange(3), *chunks))[0])

    keys = jax.random.split(jax.random.key(0), streams)
    together = jax.jit(jax.vmap(fed))(keys)
    alone = jax.jit(fed)(keys[1])
    assert together.x.shape == (streams, 6, 8)
    np.testing.assert_array_equal(together.y[1], alone.y)
    assert float(together.weights[0].sum()) == pytest.approx(3.0)
