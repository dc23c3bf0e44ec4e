"""Gradient matching: a weighted few whose gradient is that of all (Killamsetty et al., 2021).

GCR (Tiwari et al., 2022) fills replay memories in this way.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.craig import last_layer_factors
from pbcs_jax.baselines.samples.proxy import pretrained_view


@checked
def gradient_matching(
    key: jax.Array, data: Candidates, size: int, *, reg: float = 0.5
) -> np.ndarray:
    """Orthogonal matching pursuit of the mean gradient of a pretrained network's last layer.

    The next sample is the one whose gradient fits best what the weighted ones before it leave over;
    then the weights are those of least squares again, none below 0.

    Args:
      key: PRNG key, consumed.
      data: the candidates.
      size: K.
      reg: of the weights, relative to the mean squared length of the gradients.
    """
    a, b = last_layer_factors(pretrained_view(key, data), jnp.asarray(data.y))
    return np.asarray(pursue((a @ a.T) * (b @ b.T), size, reg))


@partial(jax.jit, static_argnames="size")
def pursue(products: jax.Array, size: int, reg: float) -> jax.Array:
    """Indices `[size]` in the order of the choice, of vectors with these `products [n, n]`.

    >>> vectors = jnp.array([[4.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> pursue(vectors @ vectors.T, 2, 0.01).tolist()
    [0, 3]
    """
    n = len(products)
    target = jnp.mean(products, axis=1)
    ridge = reg * jnp.mean(jnp.diagonal(products)) + 1e-12

    def body(k, carry):
        chosen, left = carry
        free = jnp.ones(n, bool).at[jnp.where(jnp.arange(size) < k, chosen, n)].set(False)
        chosen = chosen.at[k].set(jnp.argmax(jnp.where(free, left, -jnp.inf)).astype(jnp.int32))
        used = jnp.arange(size) <= k
        rows = jnp.where(used[:, None], products[chosen], 0)
        square = jnp.where(used, rows[:, chosen], 0) + ridge * jnp.eye(size)
        weights = jnp.maximum(jnp.linalg.solve(square, jnp.where(used, target[chosen], 0)), 0)
        return chosen, target - weights @ rows

    start = jnp.zeros(size, jnp.int32), target
    return jax.lax.fori_loop(0, size, body, start)[0]
