"""Exchanges of inputs: swaps that lower the outer loss, until none that is tried does.

How the loss would change with one input less or more has no closed form here, unlike for samples
(`exchange.py`). The gradient says which swaps are worth a trial: of the `TRIED` chosen inputs that
it would rather do without and the `TRIED` others that it asks for, every pair is evaluated exactly,
and the best is kept. Probabilities are learnt for masks drawn at random; this is for the one mask
that is used.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.outer.loop import Evaluate

TRIED = 4


def exchange_features(
    key: jax.Array, evaluate: Evaluate, slopes: Evaluate, indices: np.ndarray, n: int, most: int
) -> np.ndarray:
    """Swaps until the outer loss falls no further.

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
    mask = jnp.zeros(n).at[jnp.asarray(indices)].set(1.0)
    return np.flatnonzero(_exchange(key, evaluate, slopes, mask, most, len(indices)))


@partial(jax.jit, static_argnames=("most", "size"))
def _exchange(key, evaluate, slopes, mask: jax.Array, most: int, size: int) -> jax.Array:
    leaving, coming = min(TRIED, size), min(TRIED, len(mask) - size)

    def unfinished(carry):
        _, step, improves = carry
        return improves & (step < most)

    def body(carry):
        mask, step, _ = carry
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
        improves = losses[best] < now.losses[0] * (1 - 1e-5)  # rounding could go back and forth
        return jnp.where(improves, swapped[best], mask), step + 1, improves

    return jax.lax.while_loop(unfinished, body, (mask, 0, True))[0]
