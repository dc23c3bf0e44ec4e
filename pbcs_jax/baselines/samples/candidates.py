"""What every method chooses from."""

from typing import Any, NamedTuple

import numpy as np

from pbcs_jax.errors import UserError


class Candidates(NamedTuple):
    """The candidates, and the network that a method may train on them.

    Attributes:
      x: `[n, ...]` float32.
      y: `[n]` integer classes, right or wrong; a class may be missing.
      num_classes: how many there are.
      model: the proxy that methods train, a flax.linen module whose `__call__` takes `embed`.
      validation: `(x [v, ...], y [v])`, clean held-out data. Only `greedy` uses them, as its outer
        data; the published forms of the others know of none.
    """

    x: np.ndarray
    y: np.ndarray
    num_classes: int
    model: Any
    validation: tuple[np.ndarray, np.ndarray] | None = None


def check_size(data: Candidates, size: int) -> None:
    """Raises unless `size` of the candidates can be chosen.

    >>> check_size(Candidates(np.zeros((3, 2)), np.zeros(3, int), 1, None), 4)
    Traceback (most recent call last):
    pbcs_jax.errors.UserError: size is 4: choose a whole number from 1 to 3, the number of ...
    """
    if size != int(size) or not 1 <= size <= len(data.y):
        raise UserError(
            f"size is {size}: choose a whole number from 1 to {len(data.y)}, the number of "
            "candidates"
        )
