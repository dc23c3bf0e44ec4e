"""How many samples each class gets."""

import numpy as np


def even(counts: np.ndarray, size: int) -> np.ndarray:
    """As even as the classes allow; what a small class cannot give, the others give.

    Args:
      counts: `[C]` candidates of each class.
      size: K, at most their sum.

    Returns:
      `[C]`, of sum K; of two classes that have more to give, the first gets the odd one.

    >>> even(np.array([5, 1, 0, 9]), 8).tolist()
    [4, 1, 0, 3]
    """
    quotas = np.zeros_like(counts)
    while (left := size - quotas.sum()) > 0:  # every round fills a class or is one of the last two
        able = np.flatnonzero(quotas < counts)
        share = left // len(able)
        if share == 0:
            able, share = able[:left], 1
        quotas[able] = np.minimum(quotas[able] + share, counts[able])
    return quotas


def proportional(counts: np.ndarray, size: int) -> np.ndarray:
    """In proportion to the classes, rounded by the largest remainders.

    Args:
      counts: `[C]` candidates of each class.
      size: K, at most their sum.

    Returns:
      `[C]`, of sum K, none above its count.

    >>> proportional(np.array([5, 1, 0, 9]), 8).tolist()
    [3, 0, 0, 5]
    """
    total = counts.sum()
    quotas, remainders = counts * size // total, counts * size % total
    largest = np.argsort(-remainders, kind="stable")[: size - quotas.sum()]
    quotas[largest] += 1
    return quotas
