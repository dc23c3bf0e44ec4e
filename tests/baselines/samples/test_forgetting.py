"""Forgetting events: counted as a loop counts them, and without a trace in the training."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax import nets
from pbcs_jax.baselines.samples.forgetting import count_forgetting, see, totals, watch
from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import as_model

MODEL = as_model(nets.MLP(num_classes=3, hidden=(8,)))


def test_events_are_those_that_a_loop_finds():
    rng = np.random.default_rng(0)
    n, epochs, batch = 12, 6, 5
    counts = {
        "right": jnp.zeros(n, bool),
        "ever": jnp.zeros(n, bool),
        "forgotten": jnp.zeros(n, int),
    }
    history: dict[int, list[bool]] = {i: [] for i in range(n)}
    for _ in range(epochs):
        order = rng.permutation(n)
        for begin in range(0, n, batch):
            rows = order[begin : begin + batch]
            right = rng.random(batch) < np.where(np.arange(batch) % 2, 0.8, 0.2)
            padded = np.append(rows, np.full(batch - len(rows), n))  # a short batch
            counts = see(counts, jnp.asarray(padded), jnp.asarray(right))
            for row, value in zip(rows, right[: len(rows)], strict=True):
                history[row].append(bool(value))
    expected = []
    for seen in history.values():
        events = sum(a and not b for a, b in itertools.pairwise(seen))
        expected.append(events if any(seen) else epochs)
    np.testing.assert_array_equal(totals(counts, epochs), expected)
    assert len(set(expected)) > 2


def test_a_watched_training_is_the_same_training():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((20, 4)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 3, 20))
    settings = Inner(steps=12, optimizer="adam", learning_rate=0.01, batch_size=8)
    ends = []
    for model, rows in ((MODEL, x), (watch(MODEL, x, y), jnp.arange(20))):
        start = model.init(jax.random.key(0), rows[:1])
        coreset = Coreset(rows, y, jnp.ones(20))
        ends.append(train(model, losses.cross_entropy, settings, jax.random.key(1), start, coreset))
    first, second = (jax.tree.leaves(end.variables["params"]) for end in ends)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_label_that_its_copies_contradict_is_never_learned():
    x = jnp.asarray(np.repeat(9 * np.eye(3, 4, dtype=np.float32), 20, axis=0))
    y = jnp.arange(60) // 20
    y = y.at[jnp.array([4, 33])].set(jnp.array([2, 0]))
    model = as_model(nets.MLP(num_classes=3, hidden=(64,)))
    counts = np.asarray(count_forgetting(jax.random.key(0), x, y, model, epochs=60))
    assert counts[[4, 33]].min() > np.delete(counts, [4, 33]).max()
