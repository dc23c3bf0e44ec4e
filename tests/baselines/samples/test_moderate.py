"""Distances to the median distance, against a loop."""

import numpy as np

from pbcs_jax.baselines.samples.moderate import from_median


def test_it_is_what_a_loop_gives():
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((41, 5)).astype(np.float32)
    y = rng.choice([0, 2, 3], 41, p=[0.5, 0.4, 0.1])  # class 1 is missing, and so is class 4
    expected = np.zeros(41)
    for c in (0, 2, 3):
        members = np.flatnonzero(y == c)
        centre = embeddings[members].mean(axis=0)
        distance = [np.linalg.norm(embeddings[i] - centre) for i in members]
        expected[members] = np.abs(distance - np.median(distance))
    np.testing.assert_allclose(from_median(embeddings, y, 5), expected, atol=1e-5)
