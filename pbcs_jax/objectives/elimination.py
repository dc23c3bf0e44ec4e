"""Coresets of all sizes at once: from many samples, those go first that are missed least.

What is left at any moment is a coreset, and each is part of every larger one. By the closed forms
of `objectives.exchange` the outer loss without each of the chosen samples costs one pass. A block B
of the cheapest leaves at a time; with P = (G_SS + ridge)^-1, A = G_.S P and a = P t,

    P - P_B P_BB^-1 P_B',  A - A_B P_BB^-1 P_B',  f - A_B P_BB^-1 a_B

are the same without B, and have zeros where nothing is left. So shapes stay, and one compiled
program goes down to a quarter of the samples; then the next one begins with what is left.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.objectives.exchange import Learner, Outer, loss_changes
from pbcs_jax.objectives.ridge import products

SHRINK = 4
"""A stage ends with one in so many of the samples that it began with."""
_BLOCKS = 128
"""The samples of a stage leave in so many blocks or more."""


def eliminate(
    learners: tuple[Learner, ...], data: Outer, indices: np.ndarray, least: int
) -> np.ndarray:
    """One stage: `[K]` indices in the order in which they are needed, the most needed first.

    The first ones, which stay, are in their old order.

    Args:
      learners: whose mean squared errors are added up.
      data: what they are trained on and judged by.
      indices: `[K]`, what there is at first.
      least: no more are removed when so many are left, or one in `SHRINK`.
    """
    size = len(indices)
    block = max(1, size // _BLOCKS)
    rounds = -(-(size - max(least, size // SHRINK)) // block)
    if rounds < 1:
        return np.asarray(indices)
    gone = np.asarray(_eliminate(learners, data, jnp.asarray(indices), rounds, block))
    gone = gone.reshape(-1)[: size - max(least, 1)]
    stay = np.delete(np.arange(size), gone)
    return np.asarray(indices)[np.concatenate([stay, gone[::-1]])]


@partial(jax.jit, static_argnames=("rounds", "block"))
def _eliminate(learners, data: Outer, indices, rounds: int, block: int) -> jax.Array:
    """`[rounds, block]` places in `indices`, in the order in which they leave."""
    own = data.targets[indices]

    def begin(one: Learner):
        rows = one.rows[indices]
        gram = products(rows, rows, one.width)
        inverse = jnp.linalg.inv(gram + one.ridge * jnp.eye(len(rows), dtype=rows.dtype))
        along = products(one.outer, rows, one.width) @ inverse
        return inverse, along, along @ own - data.outer_targets

    def change(one: Learner, state):
        inverse, along, missing = state
        pivots = jnp.diagonal(inverse)
        step = -(inverse @ own) / jnp.where(pivots > 0, pivots, 1)[:, None]
        return one.share * loss_changes(along, step, missing, data.weights)

    def without(state, gone):
        inverse, along, missing = state
        columns = inverse[:, gone]
        back = jnp.linalg.solve(columns[gone], columns.T)  # P_BB^-1 P_B' [b, K]
        rest = along - along[:, gone] @ back
        # Exactly zero, so that rounding does not bring back who has left.
        inverse = (inverse - columns @ back).at[gone].set(0).at[:, gone].set(0)
        missing = missing - along[:, gone] @ (back @ own)
        return inverse, rest.at[:, gone].set(0), missing

    def body(carry, _):
        left, states = carry
        changes = sum(change(*pair) for pair in zip(learners, states, strict=True))
        _, gone = jax.lax.top_k(jnp.where(left, -changes, -jnp.inf), block)
        states = tuple(without(state, gone) for state in states)
        return (left.at[gone].set(False), states), gone

    begun = jnp.ones(len(indices), bool), tuple(begin(one) for one in learners)
    return jax.lax.scan(body, begun, None, rounds)[1]
