"""Votes on labels: exactly leave-one-out, and what they find."""

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.objectives import labels
from pbcs_jax.objectives.ridge import encode, products


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    rows = rng.normal(size=(n, 5)) + 2 * np.eye(3, 5)[y]
    return jnp.asarray(rows, jnp.float32), y


def test_a_vote_is_that_of_a_regression_without_the_sample():
    rows, y = data()
    targets, ones = encode(jnp.asarray(y)), jnp.ones(len(y))
    everybody = np.arange(len(y))
    for width in (None, 3.0):
        outputs, _ = labels._regress(rows, width, targets, everybody, ones, everybody)
        gram = np.asarray(products(rows, rows, width), np.float64)
        i = 7
        others = np.delete(everybody, i)
        ridges = np.array(labels._RIDGES)
        errors = []
        for ridge in ridges:
            solved = np.linalg.solve(
                gram[np.ix_(others, others)] + ridge * np.eye(len(others)),
                np.asarray(targets)[others],
            )
            errors.append(np.abs(gram[i, others] @ solved - np.asarray(outputs)[i]).max())
        assert min(errors) < 1e-3  # for the ridge that was chosen


def test_wrong_labels_are_outvoted_and_trusted_ones_stay():
    rows, true = data(150)
    y = true.copy()
    y[:30] = (y[:30] + 1) % 3
    clean = labels.vote(jax.random.key(0), [(rows, None), (rows, 3.0)], true)
    found = labels.vote(jax.random.key(0), [(rows, None), (rows, 3.0)], y)
    assert np.mean(found.kept[:30]) < 0.1  # the others leave where the classes overlap
    assert np.mean(found.kept[30:]) > np.mean(clean.kept[30:]) - 0.05
    trusted = labels.vote(jax.random.key(0), [(rows[::-1], None)], y[::-1].copy(), trusted=30)
    assert np.all(trusted.kept[-30:])


def test_a_number_far_off_is_outvoted():
    rows, _ = data(90)
    y = np.asarray(rows[:, 0] + 2 * rows[:, 1], np.float64)
    y[11] += 50
    found = labels.vote(jax.random.key(0), [(rows, None)], y)
    assert not found.kept[11] and np.mean(found.kept) > 0.9


def test_trusted_samples_weigh_more_where_the_other_labels_say_nothing():
    rng = np.random.default_rng(0)
    true = np.arange(180) % 2
    rows = jnp.asarray(rng.normal(size=(180, 5)) + 3 * np.eye(2, 5)[true], jnp.float32)
    y = true.copy()
    y[:150] = rng.integers(0, 2, 150)  # the last 30 are right
    found = labels.vote(jax.random.key(0), [(rows, None)], y, trusted=30)
    assert np.mean(found.kept[:150] == (y == true)[:150]) > 0.85
    weights = jnp.ones(180)
    everybody = np.arange(180)
    weighed = [
        labels._trust((rows, None), encode(jnp.asarray(of)), weights, everybody, 150)
        for of in (true, y)
    ]
    assert weighed[0] < weighed[1]
