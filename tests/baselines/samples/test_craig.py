"""Facility location on gradients, against loops."""

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.samples.craig import last_layer_factors, medoids
from pbcs_jax.baselines.samples.proxy import View
from pbcs_jax.inner import losses


def slow(gradients, y, wanted):
    chosen = []
    for c in range(len(wanted)):
        members = [i for i in range(len(y)) if y[i] == c]
        distance = {
            (i, j): np.linalg.norm(gradients[i] - gradients[j]) for i in members for j in members
        }
        largest = max(distance.values(), default=0)
        mine: list[int] = []
        for _ in range(wanted[c]):
            best, most = None, -1.0
            for j in members:
                if j in mine:
                    continue
                total = sum(max(largest - distance[i, k] for k in [*mine, j]) for i in members)
                if total > most:
                    best, most = j, total
            mine.append(best)
        chosen += mine
    return sorted(chosen)


def test_it_is_what_a_loop_gives():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((40, d)).astype(np.float32) for d in (3, 5))
    y = rng.choice([0, 1, 3], 40, p=[0.6, 0.3, 0.1])
    wanted = np.array([7, 3, 0, 1, 0])
    gradients = [np.outer(p, q).ravel().astype(float) for p, q in zip(a, b, strict=True)]
    found = medoids(jnp.asarray(a), jnp.asarray(b), y, wanted)
    assert found.tolist() == slow(gradients, y, wanted)


def test_the_factors_are_those_of_the_last_layers_gradient():
    rng = np.random.default_rng(0)
    embedding, kernel = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((1, 4), (4, 3)))

    def loss(kernel, bias):
        return losses.cross_entropy(embedding @ kernel + bias, jnp.array([1]))[0]

    expected = jax.grad(loss, (0, 1))(kernel, jnp.zeros(3))
    a, b = last_layer_factors(View(embedding, embedding @ kernel), jnp.array([1]))
    np.testing.assert_allclose(jnp.outer(b[0], a[0])[:4], expected[0], atol=1e-6)
    np.testing.assert_allclose(jnp.outer(b[0], a[0])[4], expected[1], atol=1e-6)
