"""A packed coreset, and its mini-batches."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Coreset(NamedTuple):
    """A packed coreset: `x [capacity, ...]`, `y [capacity, ...]`, `weights [capacity]`."""

    x: jax.Array
    y: jax.Array
    weights: jax.Array


def epochs(
    key: jax.Array, coreset: Coreset, batch_size: int
) -> Callable[[jax.Array, jax.Array], tuple[Coreset, jax.Array]]:
    """Mini-batches by shuffled epochs over the rows that count; an epoch's last may be short.

    Returns:
      `(step, order) -> (batch, order)`; the order of the rows is drawn where an epoch begins.
    """
    used = coreset.weights > 0
    count = jnp.sum(used)
    batches = jnp.maximum((count + batch_size - 1) // batch_size, 1)

    def shuffled(epoch):
        # Row i's number does not depend on the capacity: padding changes no batch.
        numbers = jax.random.uniform(jax.random.fold_in(key, epoch), used.shape)
        return jnp.argsort(jnp.where(used, numbers, 2.0)).astype(jnp.int32)

    def take(step, order):
        epoch, batch = step // batches, step % batches
        order = jax.lax.cond(batch == 0, shuffled, lambda _: order, epoch)
        position = batch * batch_size + jnp.arange(batch_size)
        rows = order[jnp.minimum(position, used.shape[0] - 1)]
        weights = jnp.where(position < count, coreset.weights[rows], 0)
        return Coreset(coreset.x[rows], coreset.y[rows], weights), order

    return take
