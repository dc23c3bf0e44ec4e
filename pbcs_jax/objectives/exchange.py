"""Exchanges at the end of a selection: swaps that lower the outer loss, until none helps.

Probabilities are learnt for masks drawn at random; exchanges are for the one mask that is used. The
policy gradient searches widely and ends near an optimum; exchanges end in one. One loop serves
samples and inputs; they differ in how the next swap is proposed.

**Samples.** The kernel's outer loss (squared error) of all coresets that differ from a given one in
one sample has a closed form. With G the products of embeddings, S the chosen ones,
P = (G_SS + ridge)^-1, A = G_.S P and f = A t_S:

    without i    f - A_i a_i                  a_i = (P t)_i / P_ii
    with j       f + C_j (t_j - f_j) / (C_jj + ridge)    C = G - A G_S., what S leaves unexplained

Both are changes of rank one, so all K removals, and all n additions after the best of them, cost
about as much as the matrix C, K n (n + v) products.

**Inputs.** There is no such form. The gradient names the swaps that are worth a trial: of the
`TRIED` chosen inputs with the largest slope and the `TRIED` others with the smallest, every pair is
evaluated exactly, and the best is kept.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.outer.base import Objective

TRIED = 4

Propose = Callable[[jax.Array], tuple[jax.Array, jax.Array, jax.Array]]
"""`chosen -> (chosen with one swap, loss before, loss after)`."""


def exchange_samples(data: Any, ridge: float, indices: np.ndarray, most: int) -> np.ndarray:
    """Swaps until the outer loss of `kernel_objective` (squared error) falls no further.

    Args:
      data: of that objective, with a Gram matrix, see `sample_kernel.gather`.
      ridge: > 0.
      indices: `[K]`, the coreset to start from.
      most: swaps at most.

    Returns:
      `[K]` sorted indices.
    """
    return np.sort(np.asarray(swap_samples(data, ridge, jnp.asarray(indices), most)))


def exchange_inputs(
    key: jax.Array, evaluate: Objective, slopes: Objective, indices: np.ndarray, n: int, most: int
) -> np.ndarray:
    """Swaps until the outer loss of `evaluate` falls no further.

    Args:
      key: PRNG key, the same for all evaluations, which should not differ by what they draw.
      evaluate: `(key, masks [M, n]) -> Evaluation`, a `jax.tree_util.Partial`.
      slopes: the same objective with `path_gradients`.
      indices: `[K]`, the groups of inputs to start from.
      n: number of groups.
      most: swaps at most.

    Returns:
      `[K]` sorted indices.
    """
    if len(indices) == n:
        return np.sort(indices)
    mask = jnp.zeros(n, jnp.float32).at[jnp.asarray(indices)].set(1.0)
    found = np.flatnonzero(_exchange_inputs(key, evaluate, slopes, mask, most, len(indices)))
    _exchange_inputs.clear_cache()  # see `loop.forget`
    return found


@partial(jax.jit, static_argnames="most")
def swap_samples(data: Any, ridge: float, indices: jax.Array, most: int) -> jax.Array:
    """`exchange_samples` as a pure function: `[K]` indices, not sorted."""
    return _while_it_helps(lambda chosen: best_swap(data, ridge, chosen), indices, most)


@partial(jax.jit, static_argnames=("most", "size"))
def _exchange_inputs(key, evaluate, slopes, mask, most: int, size: int) -> jax.Array:
    leaving, coming = min(TRIED, size), min(TRIED, len(mask) - size)

    def best_of_tried(mask):
        now = slopes(key, mask[None])
        slope = now.path_gradients[0]
        _, leave = jax.lax.top_k(jnp.where(mask > 0, slope, -jnp.inf), leaving)
        _, come = jax.lax.top_k(jnp.where(mask > 0, -jnp.inf, -slope), coming)
        leave, come = jnp.repeat(leave, coming), jnp.tile(come, leaving)
        rows = jnp.arange(leaving * coming)
        swapped = jnp.tile(mask, (len(rows), 1)).at[rows, leave].set(0.0).at[rows, come].set(1.0)
        tried = evaluate(key, swapped)
        losses = jnp.where(tried.ok, tried.losses, jnp.inf)
        best = jnp.argmin(losses)
        return swapped[best], now.losses[0], losses[best]

    return _while_it_helps(best_of_tried, mask, most)


def _while_it_helps(propose: Propose, start: jax.Array, most: int) -> jax.Array:
    def unfinished(carry):
        _, step, improves = carry
        return improves & (step < most)

    def body(carry):
        chosen, step, _ = carry
        swapped, loss, after = propose(chosen)
        improves = after < loss * (1 - 1e-5)  # a change in the last digits could go back and forth
        return jnp.where(improves, swapped, chosen), step + 1, improves

    return jax.lax.while_loop(unfinished, body, (start, 0, True))[0]


def best_swap(data: Any, ridge: float, chosen: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The removal that costs least, then the addition that helps most.

    Args:
      data: of the objective, with a Gram matrix.
      ridge: > 0.
      chosen: `[K]`.

    Returns:
      `[K]` with one of them exchanged, the loss before, and the loss after.
    """
    gram, targets, weights = data.rows, data.targets.T, data.weights
    n = len(gram)
    rows = gram[chosen]  # [K, n + v]
    inverse = jnp.linalg.inv(rows[:, chosen] + ridge * jnp.eye(len(chosen), dtype=rows.dtype))
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
    return chosen.at[leaves].set(comes.astype(chosen.dtype)), loss, after


class Unexplained(NamedTuple):
    """What a coreset leaves open: C `[n + v, n]`, see above, and `missing [n + v, c]`, f - t."""

    left: jax.Array
    missing: jax.Array


def nothing_chosen(data: Any) -> Unexplained:
    """What the empty coreset leaves open, of the data of an objective with a Gram matrix."""
    return Unexplained(data.rows.T, -data.targets.T)


def best_addition(
    data: Any, ridge: float, state: Unexplained, allowed: jax.Array
) -> tuple[jax.Array, Unexplained]:
    """The one of the `allowed [n]` candidates that helps most, and what is left open with it."""
    n = len(allowed)
    pivots = jnp.diagonal(state.left[:n]) + ridge
    step = -state.missing[:n] / pivots[:, None]
    changes = _changes(state.left, step, state.missing, data.weights)
    best = jnp.argmin(jnp.where(allowed, changes, jnp.inf))
    column = state.left[:, best]
    missing = state.missing + column[:, None] * step[best]
    return best, Unexplained(state.left - jnp.outer(column, column[:n]) / pivots[best], missing)


def _changes(along: jax.Array, steps: jax.Array, missing: jax.Array, weights: jax.Array):
    """Of the loss `[m]`, if the outputs change by `along[:, i] steps[i]`."""
    linear = jnp.sum((along.T @ (weights[:, None] * missing)) * steps, axis=1)
    square = (weights @ along**2) * jnp.sum(steps**2, axis=1)
    return 2 * linear + square
