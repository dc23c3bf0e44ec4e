"""The border of every baseline: a key and a size of any kind, checked."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pbcs_jax.border import check_key
from pbcs_jax.outer.loop import check_size


def checked(select: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`select(key, data, size)` that takes a seed as key, and raises for a size beyond `data.n`.

    Its indices are sorted. `in_order(method)` is the same in the order of the choice.
    """

    def unsorted(key: Any, data: Any, size: int, **more: Any) -> np.ndarray:
        check_size(data.n, size)
        return select(check_key(key), data, int(size), **more)

    @functools.wraps(select)
    def with_checks(key: Any, data: Any, size: int, **more: Any) -> np.ndarray:
        return np.sort(unsorted(key, data, size, **more))

    with_checks.unsorted = unsorted  # type: ignore[attr-defined]
    return with_checks


def in_order(method: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The method with its indices in the order of the choice, for whoever keeps only the first.

    Greedy, k-center, hardest and herding have such an order; of the others it means nothing.
    """
    return method.unsorted  # type: ignore[attr-defined]
