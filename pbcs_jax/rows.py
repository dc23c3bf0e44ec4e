"""Candidates that are too many to hold: a function gives rows by index, as of a mapped file."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pbcs_jax.border import Data, Encoding, check_data, statistics
from pbcs_jax.errors import UserError, one_line

SAMPLE = 10_000
"""Rows from which means and deviations are taken."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Candidates `[n, ...]` by index; what is not asked for is never read.

    Attributes:
      take: `indices [k] -> [k, ...]` NumPy array of integers or floats; ascending indices, of any
        number, each perhaps more than once.
      count: n.

    >>> rows = Rows(lambda indices: np.stack([indices, indices**2], axis=1), count=1000)
    >>> len(rows), rows.shape, rows[np.array([2, 3])].tolist()
    (1000, (1000, 2), [[2, 4], [3, 9]])
    """

    take: Callable[[np.ndarray], np.ndarray]
    count: int

    @classmethod
    def of_npy(cls, path: str) -> "Rows":
        """The rows of a file of `np.save`, which is mapped into memory, not read."""
        try:
            array = np.load(Path(path).expanduser(), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"npy file {path!r} cannot be mapped ({one_line(error)}): give a file of np.save"
            ) from error
        return cls(lambda indices: array[indices], len(array))

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:
        """`(n, ...)`."""
        return (self.count, *self[np.zeros(1, int)].shape[1:])

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Of the rows."""
        return self[np.zeros(1, int)].dtype

    def then(self, function: Callable[[np.ndarray], np.ndarray]) -> "Rows":
        """Rows that pass through a function, row by row, when they are taken.

        >>> Rows(lambda indices: indices[:, None], 5).then(lambda rows: 2 * rows).some(2).tolist()
        [[0], [8]]
        """
        return Rows(lambda indices: function(self[indices]), self.count)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        rows = np.asarray(self.take(indices))
        if rows.ndim < 2 or len(rows) != len(indices) or rows.dtype.kind not in "uif":
            raise UserError(
                f"x gives {rows.dtype} of shape {rows.shape} for {len(indices)} indices: return "
                "one row of numbers per index, [k, ...]"
            )
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            bad = int(indices[np.argwhere(~np.isfinite(rows))[0][0]])
            raise UserError(f"x is not finite in row {bad}: remove or replace what is NaN or inf")
        return rows

    def some(self, most: int = SAMPLE) -> np.ndarray:
        """Evenly spaced rows, `most` at most."""
        return self[np.linspace(0, self.count - 1, min(most, self.count)).astype(int)]


@dataclasses.dataclass(frozen=True)
class Scaled:
    """Rows, and how they are standardised after they were taken.

    Attributes:
      rows: as given.
      mean: float32, per column or channel.
      std: the same.
    """

    rows: Rows
    mean: np.ndarray
    std: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """`(n, ...)`."""
        return self.rows.shape


def check_rows(
    x: Rows, y: Any, validation: Any = None, target: str | Encoding = "auto", scale: bool = True
) -> Data:
    """`border.check_data` of rows by index: `SAMPLE` of them are looked at, the others when taken.

    Args:
      x: the candidates; `x` of the result is `Scaled`.
      y: `[n]` their targets.
      validation: `(x, y)` as arrays, or None.
      target: see `border.check_data`.
      scale: see `border.check_data`; means and deviations are those of the rows looked at.
    """
    if len(np.shape(y)) < 1 or len(y) != len(x):
        raise UserError(f"x has {len(x)} rows and y shape {np.shape(y)}: give one target per row")
    seen = x.some()
    names = {"y": y} | ({"validation y": validation[1]} if validation else {})
    encoding = target if isinstance(target, Encoding) else Encoding.of(names, target)
    targets = encoding.encode("y", y)
    is_scaled = scale and (seen.ndim == 2 or seen.dtype.kind in "ui")
    mean, std = statistics(seen) if is_scaled else (np.zeros(()), np.ones(()))
    outer = None
    if validation is not None:
        read = check_data(validation[0], validation[1], None, encoding, scale=False)
        outer = ((read.x - mean.astype(np.float32)) / std.astype(np.float32), read.y)
    scaled: Any = Scaled(x, mean.astype(np.float32), std.astype(np.float32))
    return Data(scaled, targets, outer, encoding, None, seen[:0])
