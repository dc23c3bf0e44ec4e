"""The border of every baseline: a key and a size of any kind, checked."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pbcs_jax.border import check_key
from pbcs_jax.outer.loop import check_size


def checked(select: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`select(key, data, size)` that takes a seed as key, and raises for a size beyond `data.n`."""

    @functools.wraps(select)
    def with_checks(key: Any, data: Any, size: int, **more: Any) -> np.ndarray:
        check_size(data.n, size)
        return select(check_key(key), data, int(size), **more)

    return with_checks
