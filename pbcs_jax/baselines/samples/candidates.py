"""What every method chooses from."""

from typing import Any, NamedTuple

import numpy as np


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
