"""A uniform draw: what every method has to beat."""

import jax
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates


@checked
def uniform(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """`size` of the n candidates at random, without replacement.

    >>> data = Candidates(np.zeros((5, 2)), np.zeros(5, int), 1, None)
    >>> uniform(jax.random.key(0), data, 5).tolist()
    [0, 1, 2, 3, 4]
    """
    return np.sort(np.asarray(jax.random.choice(key, len(data.y), (size,), replace=False)))
