"""A uniform draw is uniform."""

import jax
import numpy as np

from pbcs_jax.baselines import Candidates
from pbcs_jax.baselines.samples import uniform


def test_every_candidate_is_drawn_equally_often():
    data = Candidates(np.zeros((6, 2), np.float32), np.zeros(6, int), 1, None)
    drawn = [uniform(key, data, 2) for key in jax.random.split(jax.random.key(0), 600)]
    np.testing.assert_allclose(
        np.bincount(np.concatenate(drawn), minlength=6) / 600, 1 / 3, atol=0.08
    )
