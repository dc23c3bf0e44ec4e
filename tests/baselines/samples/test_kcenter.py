"""Farthest-first, against a loop."""

import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.samples.kcenter import farthest_first


def slow(embeddings, first, size):
    chosen = [first]
    while len(chosen) < size:
        best, farthest = None, -1.0
        for i in range(len(embeddings)):
            if i in chosen:
                continue
            nearest = min(np.sum((embeddings[i] - embeddings[j]) ** 2) for j in chosen)
            if nearest > farthest:
                best, farthest = i, nearest
        chosen.append(best)
    return chosen


def test_it_is_what_a_loop_gives():
    embeddings = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    embeddings[30:] = embeddings[:10]  # copies come last, and none of them twice
    for first, size in ((7, 12), (0, 40)):
        found = farthest_first(jnp.asarray(embeddings), first, size)
        assert found.tolist() == slow(embeddings, first, size)
