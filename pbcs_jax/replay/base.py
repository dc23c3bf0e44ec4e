"""What all memories share: their interface, a draw from what is stored, and files."""

import os
import uuid
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.errors import UserError, one_line


class Rows(NamedTuple):
    """What is stored, in rows that are filled in any order.

    Attributes:
      x: `[size, ...]`, or a pytree of such arrays.
      y: `[size, ...]`, or a pytree: labels, or labels and logits.
      weights: `[size]`, what each row counts in the loss of the replay; 0 of an empty row.
    """

    x: Any
    y: Any
    weights: jax.Array


class Memory(Protocol):
    """A memory: settings that do not change, and pure functions on a state of fixed shape."""

    def init(self, x: Any, y: Any) -> Any:
        """An empty state for chunks such as `x [c, ...]`, `y [c, ...]`."""

    def add(self, key: jax.Array, state: Any, x: Any, y: Any) -> Any:
        """The state after one more chunk."""

    def rows(self, state: Any) -> Rows:
        """All that is stored."""

    def sample(self, key: jax.Array, state: Any, n: int) -> Rows:
        """`n` of the stored rows at random, with replacement."""


def empty(size: int, x: Any, y: Any) -> Rows:
    """Empty rows for chunks such as `x`, `y`."""

    def room(leaf):
        leaf = jnp.asarray(leaf)
        return jnp.zeros((size, *leaf.shape[1:]), leaf.dtype)

    return Rows(jax.tree.map(room, x), jax.tree.map(room, y), jnp.zeros(size))


def put(stored: Any, source: jax.Array, chunk: Any) -> Any:
    """The stored arrays `[size, ...]` with the chunk's row `source [size]` where that is not -1.

    >>> put(jnp.array([7, 8, 9]), jnp.array([-1, 1, -1]), jnp.array([5, 6])).tolist()
    [7, 6, 9]
    """

    def one(old, new):
        is_new = (source >= 0).reshape(-1, *[1] * (old.ndim - 1))
        return jnp.where(is_new, jnp.asarray(new).astype(old.dtype)[source], old)

    return jax.tree.map(one, stored, chunk)


def rehearse(key: jax.Array, stored: Rows, n: int) -> Rows:
    """`n` of the stored rows at random, with replacement; of an empty memory, weights of 0.

    >>> stored = Rows(jnp.arange(3.0), jnp.arange(3), jnp.array([0.0, 2.0, 0.0]))
    >>> [leaf.tolist() for leaf in rehearse(jax.random.key(0), stored, 2)]
    [[1.0, 1.0], [1, 1], [2.0, 2.0]]
    """
    filled = jnp.cumsum(stored.weights > 0)
    wanted = jax.random.randint(key, (n,), 0, jnp.maximum(filled[-1], 1))
    drawn = jnp.minimum(jnp.searchsorted(filled, wanted, side="right"), len(filled) - 1)
    return jax.tree.map(lambda leaf: leaf[drawn], stored)


def length(x: Any) -> int:
    """The number of rows of a chunk."""
    return len(jax.tree.leaves(x)[0])


def save(path: str | os.PathLike[str], state: Any) -> None:
    """Writes the state of any memory into an npz file, whole or not at all, without pickle."""
    path = Path(path)
    leaves = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(beside, "xb") as file:
            np.savez(file, allow_pickle=False, **leaves)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], like: Any) -> Any:
    """The state that `save` wrote.

    Args:
      path: of the file.
      like: a state of the same memory, such as `memory.init(x, y)`.
    """
    leaves, structure = jax.tree.flatten(like)
    try:
        with np.load(path, allow_pickle=False) as file:
            found = [file[f"leaf_{i}"] for i in range(len(file.files))]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(
            f"memory file {str(path)!r} cannot be read ({one_line(error)}): give a file that "
            "`replay.save` wrote"
        ) from error
    shapes, wanted = ([(a.shape, str(a.dtype)) for a in arrays] for arrays in (found, leaves))
    if shapes != wanted:
        raise UserError(
            f"memory file {str(path)!r} is of another memory ({shapes} in place of {wanted}): "
            "give the state of the same memory as `like`"
        )
    return jax.tree.unflatten(structure, map(jnp.asarray, found))
