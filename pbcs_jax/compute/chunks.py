"""A function over many rows, a chunk at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def in_chunks(function: Callable[[jax.Array], Any], rows: jax.Array, chunk: int) -> Any:
    """`function(rows)` a chunk of rows at a time, so that memory does not grow with their number.

    Args:
      function: `[chunk, ...] -> [chunk, ...]`, row by row.
      rows: `[n, ...]`.
      chunk: rows at once.

    Returns:
      `[n, ...]`.
    """
    n = rows.shape[0]
    if n <= chunk:
        return function(rows)
    pieces = -(-n // chunk)
    chunk = -(-n // pieces)  # as even as possible: the fill-up is less than one row per piece
    fill = pieces * chunk - n
    rows = jnp.concatenate([rows, rows[:fill]]) if fill else rows
    # Checkpointed: reverse mode keeps the chunk's input, not its activations.
    outputs = jax.lax.map(jax.checkpoint(function), rows.reshape(pieces, chunk, *rows.shape[1:]))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:n], outputs)
