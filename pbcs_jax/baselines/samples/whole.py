"""Everything: what a coreset is measured by."""

import jax
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates


@checked
def whole(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """All n candidates, whatever `size` is.

    >>> data = Candidates(np.zeros((3, 2)), np.zeros(3, int), 1, None)
    >>> whole(jax.random.key(0), data, 1).tolist()
    [0, 1, 2]
    """
    return np.arange(len(data.y))
