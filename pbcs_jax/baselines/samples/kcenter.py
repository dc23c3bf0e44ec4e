"""k-center: no candidate is far from the coreset (Sener and Savarese, 2018)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.proxy import pretrained_view


@checked
def kcenter(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """Farthest-first in the penultimate layer of a pretrained network, from a random start.

    Greedy, and within a factor of 2 of the smallest `max_i min_{j in S} |e_i - e_j|` there is.
    """
    first_key, view_key = jax.random.split(key)
    first = jax.random.randint(first_key, (), 0, len(data.y))
    return np.asarray(farthest_first(pretrained_view(view_key, data).embeddings, first, size))


@partial(jax.jit, static_argnames="size")
def farthest_first(embeddings: jax.Array, first: jax.Array, size: int) -> jax.Array:
    """Indices `[size]` in the order of the choice, of `embeddings [n, d]`, beginning with `first`.

    >>> farthest_first(jnp.array([[0.0], [1.0], [9.0], [5.0]]), 0, 3).tolist()
    [0, 2, 3]
    """

    def body(i, carry):
        chosen, nearest = carry
        last = chosen[i - 1]
        distance = jnp.sum((embeddings - embeddings[last]) ** 2, axis=1)
        # Below every distance, 0 of a duplicate included: nothing is chosen twice.
        nearest = jnp.minimum(nearest, distance).at[last].set(-1)
        return chosen.at[i].set(jnp.argmax(nearest).astype(jnp.int32)), nearest

    chosen = jnp.zeros(size, jnp.int32).at[0].set(first.astype(jnp.int32))
    unknown = jnp.full(len(embeddings), jnp.inf)
    return jax.lax.fori_loop(1, size, body, (chosen, unknown))[0]
