"""Exchanges: the best swap of a chosen candidate for another, exactly, until none helps.

The kernel's outer loss (squared error) of all coresets that differ from a given one in one sample
has a closed form. With G the products of features, S the chosen ones, P = (G_SS + ridge)^-1,
A = G_.S P and f = A t_S:

    without i    f - A_i a_i                  a_i = (P t)_i / P_ii
    with j       f + C_j (t_j - f_j) / (C_jj + ridge)    C = G - A G_S., what S leaves unexplained

Both are changes of rank one, so all K removals, and all n additions after the best of them, cost
about as much as the matrix C, K n (n + v) products. The policy gradient searches widely and ends
near an optimum; exchanges end in one.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.errors import UserError
from pbcs_jax.objectives.sample_kernel import LARGEST_GRAM, Data, gather


def exchange(
    features: jax.Array,
    y: jax.Array,
    indices: np.ndarray,
    *,
    ridge: float,
    most: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
) -> np.ndarray:
    """Swaps until the outer loss of `kernel_objective` (squared error) falls no further.

    Args:
      features: `[n, d]` of the candidates.
      y: `[n]` integer classes, or `[n]` or `[n, c]` regression targets.
      indices: `[K]`, the coreset to start from.
      ridge: > 0.
      most: swaps at most.
      validation: `(features [v, d], y)`, held-out outer data; the candidates themselves if None.

    Returns:
      `[K]` sorted indices.
    """
    data, is_gram = gather(features, y, validation, 0.0, capacity=0)
    if not is_gram:
        raise UserError(
            f"kernel.exchanges are for candidates (here {len(y)}) times outer data up to "
            f"{LARGEST_GRAM}: use 0, or fewer candidates"
        )
    start = jnp.asarray(indices)
    return np.sort(np.asarray(_exchange(data, ridge, start, most)))


@partial(jax.jit, static_argnames="most")
def _exchange(data: Data, ridge: float, indices: jax.Array, most: int) -> jax.Array:
    def unfinished(carry):
        _, step, improves = carry
        return improves & (step < most)

    def body(carry):
        chosen, step, _ = carry
        swapped, loss, after = best_swap(data, ridge, chosen)
        improves = after < loss * (1 - 1e-5)  # a change in the last digits could go back and forth
        return jnp.where(improves, swapped, chosen), step + 1, improves

    return jax.lax.while_loop(unfinished, body, (indices, 0, True))[0]


def best_swap(
    data: Data, ridge: float, chosen: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The removal that costs least, then the addition that helps most.

    Args:
      data: of the objective, with a Gram matrix.
      ridge: > 0.
      chosen: `[K]`.

    Returns:
      `[K]` with one of them exchanged, the loss before, and the loss after.
    """
    gram, targets, weights = data.features, data.targets.T, data.weights
    n = len(gram)
    rows = gram[chosen]  # [K, n + v]
    inverse = jnp.linalg.inv(rows[:, chosen] + ridge * jnp.eye(len(chosen)))
    own = targets[chosen]
    along = rows.T @ inverse  # A [n + v, K]
    missing = along @ own - targets
    loss = weights @ jnp.sum(missing**2, axis=1)

    diagonal = jnp.diagonal(inverse)
    step = -(inverse @ own) / diagonal[:, None]
    removals = _changes(along, step, missing, weights)
    leaves = jnp.argmin(removals)
    missing = missing + along[:, leaves, None] * step[leaves]

    # What the others leave unexplained: without the one that leaves, more.
    left = gram.T - along @ rows[:, :n]
    left = left + jnp.outer(along[:, leaves], along[:n, leaves]) / diagonal[leaves]
    step = -missing[:n] / (jnp.diagonal(left[:n]) + ridge)[:, None]
    additions = _changes(left, step, missing, weights)
    taken = jnp.zeros(n, bool).at[chosen].set(True).at[chosen[leaves]].set(False)
    comes = jnp.argmin(jnp.where(taken, jnp.inf, additions))
    after = loss + removals[leaves] + additions[comes]
    return chosen.at[leaves].set(comes), loss, after


def _changes(along: jax.Array, steps: jax.Array, missing: jax.Array, weights: jax.Array):
    """Of the loss `[m]`, if the outputs change by `along[:, i] steps[i]`."""
    linear = jnp.sum((along.T @ (weights[:, None] * missing)) * steps, axis=1)
    square = (weights @ along**2) * jnp.sum(steps**2, axis=1)
    return 2 * linear + square
