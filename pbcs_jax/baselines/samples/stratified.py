"""A draw that is uniform within each class, of each class as many."""

import jax
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples import quotas
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.scores import highest_of_each_class


@checked
def stratified(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """Of each class as many at random; a class with fewer leaves its rest to the others.

    >>> data = Candidates(np.zeros((6, 2)), np.array([0, 0, 0, 0, 1, 2]), 3, None)
    >>> np.bincount(data.y[stratified(jax.random.key(0), data, 5)]).tolist()
    [3, 1, 1]
    """
    wanted = quotas.even(np.bincount(data.y, minlength=data.num_classes), size)
    order = np.asarray(jax.random.permutation(key, data.n))
    return highest_of_each_class(order, data.y, wanted)
