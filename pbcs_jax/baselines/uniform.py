"""A uniform draw: what every method has to beat."""

import jax
import numpy as np


def uniform(key: jax.Array, x: np.ndarray, y: np.ndarray, size: int) -> np.ndarray:
    """`size` of the n candidates at random, without replacement.

    >>> uniform(jax.random.key(0), np.zeros((5, 2)), np.zeros(5), 5).tolist()
    [0, 1, 2, 3, 4]
    """
    del y
    return np.sort(np.asarray(jax.random.choice(key, len(x), (size,), replace=False)))
