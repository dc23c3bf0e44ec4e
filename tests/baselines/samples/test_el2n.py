"""The error's length, and whose is longest."""

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax import nets
from pbcs_jax.baselines import Candidates
from pbcs_jax.baselines.samples import el2n
from pbcs_jax.baselines.samples.el2n import error_norm


def test_the_score_is_the_length_of_the_error():
    rng = np.random.default_rng(0)
    logits, y = rng.standard_normal((20, 4)).astype(np.float32), rng.integers(0, 4, 20)
    expected = []
    for row, label in zip(logits, y, strict=True):
        error = np.exp(row) / np.exp(row).sum()
        error[label] -= 1
        expected.append(np.sqrt(sum(e * e for e in error)))
    np.testing.assert_allclose(error_norm(jnp.asarray(logits), jnp.asarray(y)), expected, rtol=1e-5)


def test_wrong_labels_score_highest():
    truth = np.arange(60) % 3
    noise = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32) / 4
    y = truth.copy()
    wrong = np.array([5, 21, 40])
    y[wrong] = (y[wrong] + 1) % 3
    x = 9 * np.eye(3, 6, dtype=np.float32)[truth] + noise
    data = Candidates(x, y, 3, nets.MLP(num_classes=3, hidden=(64,)))
    np.testing.assert_array_equal(el2n(jax.random.key(0), data, 3, trainings=2), wrong)
