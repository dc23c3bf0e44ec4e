"""Reservoir sampling: each sample of the stream so far is stored with the same probability."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.errors import check_number
from pbcs_jax.replay import base
from pbcs_jax.replay.base import Rows


class ReservoirState(NamedTuple):
    """`stored` rows, and how many samples have been `seen`, up to 2^31 - 1."""

    stored: Rows
    seen: jax.Array


@dataclasses.dataclass(frozen=True)
class Reservoir:
    """Vitter's algorithm R, a chunk at a time; weights are 1.

    Attributes:
      size: how many samples are stored.

    >>> memory = Reservoir(3)
    >>> x, y = jnp.arange(8.0).reshape(8, 1), jnp.arange(8)
    >>> state = memory.init(x, y)
    >>> state = jax.jit(memory.add)(jax.random.key(0), state, x, y)
    >>> x, y, weights = memory.sample(jax.random.key(1), state, 5)
    >>> x.shape, y.shape, weights.tolist()
    ((5, 1), (5,), [1.0, 1.0, 1.0, 1.0, 1.0])
    """

    size: int

    def __post_init__(self):
        check_number("size", self.size, least=1, whole=True)

    def init(self, x: Any, y: Any) -> ReservoirState:
        """An empty state for chunks such as `x [c, ...]`, `y [c, ...]`."""
        return ReservoirState(base.empty(self.size, x, y), jnp.zeros((), jnp.int32))

    def add(self, key: jax.Array, state: ReservoirState, x: Any, y: Any) -> ReservoirState:
        """The state after the chunk, as if its samples had come one by one."""
        count = base.length(x)
        numbers = state.seen + jnp.arange(count)
        drawn = jax.random.randint(key, (count,), 0, numbers + 1)
        place = jnp.where(numbers < self.size, numbers, drawn)  # at `size` and beyond: not stored
        # Of several that come to one place, the last one stays.
        order = jnp.arange(count, dtype=jnp.int32)
        source = jnp.full(self.size, -1, jnp.int32).at[place].max(order, mode="drop")
        stored, seen = state.stored, state.seen + count
        x, y = base.put((stored.x, stored.y), source, (x, y))
        weights = jnp.where(jnp.arange(self.size) < seen, 1.0, 0.0)
        return ReservoirState(Rows(x, y, weights), seen)

    def rows(self, state: ReservoirState) -> Rows:
        """All that is stored."""
        return state.stored

    def sample(self, key: jax.Array, state: ReservoirState, n: int) -> Rows:
        """`n` of the stored rows at random, with replacement."""
        return base.rehearse(key, state.stored, n)
