"""Other ways to choose: one file a method, all with one signature.

select(key, x [n, ...], y [n], size) -> indices [size], sorted; only `whole` gives more
"""

from collections.abc import Callable

import jax
import numpy as np

from pbcs_jax.baselines.uniform import uniform
from pbcs_jax.baselines.whole import whole

Select = Callable[[jax.Array, np.ndarray, np.ndarray, int], np.ndarray]

BASELINES: dict[str, Select] = {"uniform": uniform, "whole": whole}

__all__ = ["BASELINES", "Select", "uniform", "whole"]
