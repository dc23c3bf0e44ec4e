"""From scores to choices."""

import numpy as np


def highest(scores: np.ndarray, size: int) -> np.ndarray:
    """Sorted indices `[size]` of the highest of `scores [n]`; of equal ones, the first.

    >>> highest(np.array([1.0, 3.0, 2.0, 3.0]), 2).tolist()
    [1, 3]
    """
    return np.sort(np.argsort(-np.asarray(scores), kind="stable")[:size])


def highest_of_each_class(scores: np.ndarray, y: np.ndarray, quotas: np.ndarray) -> np.ndarray:
    """Sorted indices of the `quotas[c]` highest of `scores [n]` in every class c.

    >>> highest_of_each_class(np.array([3, 2, 1, 0]), np.array([0, 0, 1, 1]), np.array([1, 1]))
    array([0, 2])
    """
    order = np.lexsort((-np.asarray(scores), y))
    classes = np.asarray(y)[order]
    rank = np.arange(len(order)) - np.searchsorted(classes, classes)
    return np.sort(order[rank < quotas[classes]])
