"""A memory of tasks: of each task so far the same number of samples, the first of its order."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.errors import UserError, check_number
from pbcs_jax.replay import base
from pbcs_jax.replay.base import Rows


class TaskState(NamedTuple):
    """`stored` rows, `seen` tasks, and how many samples each has given, `counts [tasks]`."""

    stored: Rows
    seen: jax.Array
    counts: jax.Array


@dataclasses.dataclass(frozen=True)
class TaskMemory:
    """After t tasks floor(size / t) samples of each; a chunk is the coreset of one task, in order.

    Earlier tasks are cut to their first floor(size / t), so a coreset should be one whose prefixes
    are coresets too. A row's weight is 1 over the number of rows of its task: the weighted sum of
    losses is the sum over the tasks of the mean loss of each.

    Attributes:
      size: how many samples are stored.
      tasks: how many tasks there will be at most.

    >>> memory = TaskMemory(size=4, tasks=2)
    >>> first, second = jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([5.0, 6.0, 7.0, 8.0])
    >>> state = memory.init(first, first)
    >>> for task in (first, second):
    ...     state = memory.add(None, state, task, task)
    >>> state.stored.x.tolist(), state.stored.weights.tolist()
    ([1.0, 2.0, 5.0, 6.0], [0.5, 0.5, 0.5, 0.5])
    """

    size: int
    tasks: int

    def __post_init__(self):
        check_number("tasks", self.tasks, least=1, whole=True)
        check_number("size", self.size, least=1, whole=True)
        if self.size < self.tasks:
            raise UserError(
                f"size is {self.size}: give at least {self.tasks}, one sample for each of the tasks"
            )

    def init(self, x: Any, y: Any) -> TaskState:
        """An empty state for coresets such as `x [k, ...]`, `y [k, ...]`."""
        none = jnp.zeros(self.tasks, jnp.int32)
        return TaskState(base.empty(self.size, x, y), jnp.zeros((), jnp.int32), none)

    def add(self, key: Any, state: TaskState, x: Any, y: Any) -> TaskState:
        """The state after one more task; `key` is not used."""
        del key
        before, now = jnp.maximum(state.seen, 1), state.seen + 1
        quota, old = self.size // now, self.size // before
        counts = state.counts.at[state.seen].set(base.length(x))
        rows = jnp.arange(self.size)
        task, rank = rows // quota, rows % quota
        kept = jnp.minimum(counts[jnp.minimum(task, self.tasks - 1)], quota)
        is_filled = (task < now) & (rank < kept)
        is_new = is_filled & (task == state.seen)
        earlier = jnp.where(is_filled & ~is_new, task * old + rank, 0)
        stored = jax.tree.map(lambda leaf: leaf[earlier], (state.stored.x, state.stored.y))
        x, y = base.put(stored, jnp.where(is_new, rank, -1), (x, y))
        weights = jnp.where(is_filled, 1 / jnp.maximum(kept, 1), 0.0)
        return TaskState(Rows(x, y, weights), now, counts)

    def rows(self, state: TaskState) -> Rows:
        """All that is stored."""
        return state.stored

    def sample(self, key: jax.Array, state: TaskState, n: int) -> Rows:
        """`n` of the stored rows at random, with replacement."""
        return base.rehearse(key, state.stored, n)
