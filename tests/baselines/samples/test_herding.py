"""iCaRL's herding, against a loop."""

import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.samples.herding import herding_ranks


def slow(embeddings, y, steps):
    ranks = np.full(len(y), len(y))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for c in set(y):
        members = [i for i in range(len(y)) if y[i] == c]
        mean, chosen = unit[members].mean(axis=0), []
        for k in range(min(steps, len(members))):
            rest = [i for i in members if i not in chosen]
            miss = [np.sum((mean - unit[[*chosen, i]].mean(axis=0)) ** 2) for i in rest]
            chosen.append(rest[int(np.argmin(miss))])
            ranks[chosen[-1]] = k
    return ranks


def test_it_is_what_a_loop_gives():
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((50, 6)).astype(np.float32)
    y = rng.choice([0, 1, 3], 50, p=[0.6, 0.3, 0.1])
    for steps in (1, 9, 50):
        found = herding_ranks(jnp.asarray(embeddings), jnp.asarray(y), steps, 4)
        np.testing.assert_array_equal(found, slow(embeddings.astype(float), y, steps))


def test_the_length_of_an_embedding_does_not_matter():
    rng = np.random.default_rng(1)
    embeddings, y = rng.standard_normal((20, 3)).astype(np.float32), np.arange(20) % 2
    scaled = embeddings * rng.uniform(1, 9, (20, 1)).astype(np.float32)
    first, second = (
        herding_ranks(jnp.asarray(e), jnp.asarray(y), 8, 2) for e in (embeddings, scaled)
    )
    np.testing.assert_array_equal(first, second)
