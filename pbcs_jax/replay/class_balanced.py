"""Class-balanced reservoir sampling, CBRS (Chrysakis and Moens, 2020)."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.errors import check_number
from pbcs_jax.replay import base
from pbcs_jax.replay.base import Rows


class ClassBalancedState(NamedTuple):
    """What is stored, and where each class has its rows.

    Attributes:
      stored: the rows.
      seen: `[C]` samples of each class so far.
      counts: `[C]` stored samples of each class.
      places: `[C, size]`, row c begins with the `counts[c]` places of class c.
      full: `[C]`, which classes have been the largest of a full memory.
    """

    stored: Rows
    seen: jax.Array
    counts: jax.Array
    places: jax.Array
    full: jax.Array


@dataclasses.dataclass(frozen=True)
class ClassBalancedReservoir:
    """Classes as even as the stream allows, and a reservoir within each; weights are 1.

    As long as there is room every sample is stored. Then a sample of a class that has never been
    the largest takes the place of one of the largest; a sample of any other class is stored as in a
    reservoir of its class.

    Attributes:
      size: how many samples are stored.
      num_classes: C; labels are 0..C-1.
      label: where `y` is more than labels, `y -> labels [c]`.

    >>> memory = ClassBalancedReservoir(4, num_classes=2)
    >>> x, y = jnp.arange(9.0), jnp.array([0, 0, 0, 0, 0, 0, 0, 1, 1])
    >>> state = memory.add(jax.random.key(0), memory.init(x, y), x, y)
    >>> sorted(state.stored.y.tolist())
    [0, 0, 1, 1]
    """

    size: int
    num_classes: int
    label: Callable[[Any], Any] = lambda y: y

    def __post_init__(self):
        check_number("size", self.size, least=1, whole=True)
        check_number("num_classes", self.num_classes, least=1, whole=True)

    def init(self, x: Any, y: Any) -> ClassBalancedState:
        """An empty state for chunks such as `x [c, ...]`, labels `y [c]`."""
        seen, counts = (jnp.zeros(self.num_classes, jnp.int32) for _ in range(2))
        places = jnp.zeros((self.num_classes, self.size), jnp.int32)
        return ClassBalancedState(base.empty(self.size, x, y), seen, counts, places, seen > 0)

    def add(self, key: jax.Array, state: ClassBalancedState, x: Any, y: Any) -> ClassBalancedState:
        """The state after the chunk; its samples come one by one."""
        labels = jnp.asarray(self.label(y))
        uniforms = jax.random.uniform(key, (len(labels), 2))
        source = jnp.full(self.size, -1, jnp.int32)

        def body(i, carry):
            seen, counts, places, full, source = carry
            label = labels[i]
            seen = seen.at[label].add(1)
            total = jnp.sum(counts)
            is_full = total >= self.size
            largest = jnp.argmax(counts).astype(label.dtype)
            full = full | (is_full & (counts == counts[largest]))
            own = full[label]
            kept = uniforms[i, 0] * seen[label] < counts[label]
            # What goes: nothing while there is room, else one of its own class or of the largest.
            leaves = jnp.where(own, label, largest)
            stored = ~is_full | ~own | kept
            k = (uniforms[i, 1] * counts[leaves]).astype(jnp.int32)
            place = jnp.where(is_full, places[leaves, k], total)
            last = counts[leaves] - 1
            removes = stored & is_full
            # The last of its class moves into the gap.
            moved = jnp.where(removes, places[leaves, last], places[leaves, k])
            places = places.at[leaves, k].set(moved)
            counts = counts.at[leaves].add(-removes.astype(jnp.int32))
            at = jnp.where(stored, counts[label], self.size)
            places = places.at[label, at].set(place, mode="drop")
            counts = counts.at[label].add(stored.astype(jnp.int32))
            source = source.at[jnp.where(stored, place, self.size)].set(i, mode="drop")
            return seen, counts, places, full, source

        start = state.seen, state.counts, state.places, state.full, source
        seen, counts, places, full, source = jax.lax.fori_loop(0, len(labels), body, start)
        stored = state.stored
        x, y = base.put((stored.x, stored.y), source, (x, y))
        weights = jnp.where(source >= 0, 1.0, stored.weights)
        return ClassBalancedState(Rows(x, y, weights), seen, counts, places, full)

    def rows(self, state: ClassBalancedState) -> Rows:
        """All that is stored."""
        return state.stored

    def sample(self, key: jax.Array, state: ClassBalancedState, n: int) -> Rows:
        """`n` of the stored rows at random, with replacement."""
        return base.rehearse(key, state.stored, n)
