"""Other ways to choose: one file a method, all with one signature.

select(key, x [n, ...], y [n], size) -> indices [size], sorted
"""

from collections.abc import Callable

import jax
import numpy as np

from pbcs_jax.baselines.uniform import uniform

Select = Callable[[jax.Array, np.ndarray, np.ndarray, int], np.ndarray]

BASELINES: dict[str, Select] = {"uniform": uniform}

__all__ = ["BASELINES", "Select", "uniform"]
