"""Merge and reduce: slots of samples that stand for longer and longer parts of the stream.

A chunk is reduced to one slot of weight 1. When there is one slot too many, two neighbours of
equal, lowest weight are merged, that is reduced again from the union of their rows, and the merged
slot has the sum of their weights (Borsos et al. 2020). So the number of slots grows with the
logarithm of the stream.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.errors import UserError, check_number
from pbcs_jax.replay import base
from pbcs_jax.replay.base import Rows

Reduce = Callable[[jax.Array, Any, Any, jax.Array, int], Any]
"""`(key, x [m, ...], y [m, ...], weights [m], size) -> indices [size]`."""


class SlotState(NamedTuple):
    """Slots from the oldest to the newest; one more than are kept, for the newest.

    Attributes:
      x: `[slots + 1, k, ...]`.
      y: `[slots + 1, k, ...]`.
      weights: `[slots + 1]`, chunks that a slot stands for; 0 of an empty one.
    """

    x: Any
    y: Any
    weights: jax.Array


@dataclasses.dataclass(frozen=True)
class MergeReduce:
    """Slots of equally many samples, each a coreset of a part of the stream.

    A row's weight is the weight of its slot over the rows of a slot: the weighted sum of losses is
    the sum over the slots of their weight times their mean loss.

    Attributes:
      slots: how many.
      slot_size: samples of each, k.
      reduce: `(key, x [m, ...], y, weights [m], size) -> indices [size]`, any selector, such as
        `replay.by_kernel(...)`. One that is pure JAX may be compiled with `jax.jit(memory.add)`;
        any other is called by `memory.add` itself.

    >>> first = lambda key, x, y, weights, size: jnp.arange(size)
    >>> memory = MergeReduce(slots=2, slot_size=2, reduce=first)
    >>> state = memory.init(jnp.zeros(4), jnp.zeros(4))
    >>> for start in (0.0, 4.0, 8.0):
    ...     x = start + jnp.arange(4.0)
    ...     state = jax.jit(memory.add)(jax.random.key(0), state, x, x)
    >>> memory.rows(state).x.tolist(), state.weights.tolist()
    ([0.0, 1.0, 8.0, 9.0], [2.0, 1.0, 0.0])
    """

    slots: int
    slot_size: int
    reduce: Reduce

    def __post_init__(self):
        check_number("slots", self.slots, least=2, whole=True)
        check_number("slot_size", self.slot_size, least=1, whole=True)

    def init(self, x: Any, y: Any) -> SlotState:
        """An empty state for chunks such as `x [c, ...]`, `y [c, ...]`, c at least `slot_size`."""
        count = self.slots + 1
        rows = base.empty(count * self.slot_size, x, y)
        x, y = jax.tree.map(
            lambda leaf: leaf.reshape(count, self.slot_size, *leaf.shape[1:]), (rows.x, rows.y)
        )
        return SlotState(x, y, jnp.zeros(count))

    def add(self, key: jax.Array, state: SlotState, x: Any, y: Any) -> SlotState:
        """The state after the chunk."""
        count = base.length(x)
        if count < self.slot_size:
            raise UserError(
                f"a chunk has {count} samples: give at least {self.slot_size}, as many as a slot"
            )
        new_key, merge_key = jax.random.split(key)
        new = self._reduced(new_key, x, y, jnp.ones(count))
        at = jnp.sum(state.weights > 0)
        x, y = jax.tree.map(
            lambda all_, one: all_.at[at].set(one.astype(all_.dtype)), (state.x, state.y), new
        )
        state = SlotState(x, y, state.weights.at[at].set(1.0))
        is_over = state.weights[-1] > 0
        merge = lambda state: self._merged(merge_key, state)  # noqa: E731
        if isinstance(is_over, jax.core.Tracer):
            return jax.lax.cond(is_over, merge, lambda state: state, state)
        return merge(state) if is_over else state

    def rows(self, state: SlotState) -> Rows:
        """All that is stored."""
        x, y = jax.tree.map(lambda leaf: leaf[:-1].reshape(-1, *leaf.shape[2:]), (state.x, state.y))
        return Rows(x, y, jnp.repeat(state.weights[:-1] / self.slot_size, self.slot_size))

    def sample(self, key: jax.Array, state: SlotState, n: int) -> Rows:
        """`n` of the stored rows at random, with replacement."""
        return base.rehearse(key, self.rows(state), n)

    def _reduced(self, key: jax.Array, x: Any, y: Any, weights: jax.Array) -> Any:
        chosen = jnp.asarray(self.reduce(key, x, y, weights, self.slot_size))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], (x, y))

    def _merged(self, key: jax.Array, state: SlotState) -> SlotState:
        first = merged_first(state.weights)
        both = jnp.stack([first, first + 1])
        x, y = jax.tree.map(
            lambda leaf: leaf[both].reshape(-1, *leaf.shape[2:]), (state.x, state.y)
        )
        weights = jnp.repeat(state.weights[both], self.slot_size)
        new = self._reduced(key, x, y, weights)
        place = jnp.arange(self.slots + 1)
        later = jnp.minimum(place + (place > first), self.slots)
        x, y = jax.tree.map(
            lambda all_, one: all_[later].at[first].set(one), (state.x, state.y), new
        )
        total = jnp.sum(state.weights[both])
        weights = state.weights[later].at[first].set(total).at[-1].set(0.0)
        return SlotState(x, y, weights)


def merged_first(weights: jax.Array) -> jax.Array:
    """The first of the two neighbours to be merged, of `weights [slots + 1]`.

    They have equal weights, the lowest there are two of; where no two neighbours are equal, they
    are the last two before the newest.

    >>> [int(merged_first(jnp.array(w))) for w in ([2.0, 2, 1, 1], [4.0, 2, 2, 1], [4.0, 2, 1.5])]
    [2, 1, 0]
    """
    is_equal = weights[:-1] == weights[1:]
    lowest = jnp.argmin(jnp.where(is_equal, weights[:-1], jnp.inf))
    return jnp.where(jnp.any(is_equal), lowest, len(weights) - 3)
