"""Other ways to choose inputs: one file a method, all with one signature.

select(key, data: Inputs, size) -> indices [size] of groups, sorted and distinct
"""

from collections.abc import Callable

import jax
import numpy as np

from pbcs_jax.baselines.inputs.candidates import Inputs
from pbcs_jax.baselines.inputs.f_score import f_score
from pbcs_jax.baselines.inputs.greedy import greedy
from pbcs_jax.baselines.inputs.mrmr import mrmr
from pbcs_jax.baselines.inputs.mutual_information import mutual_information
from pbcs_jax.baselines.inputs.uniform import uniform

Select = Callable[[jax.Array, Inputs, int], np.ndarray]

FEATURE_BASELINES: dict[str, Select] = {
    "uniform": uniform,
    "f_score": f_score,
    "mutual_information": mutual_information,
    "mrmr": mrmr,
    "greedy": greedy,
}

__all__ = ["FEATURE_BASELINES", "Inputs", "Select", *FEATURE_BASELINES]
