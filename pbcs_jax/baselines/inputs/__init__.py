"""Other ways to choose inputs: one file per method, all with one signature.

select(key, data: InputCandidates, size) -> indices [size] of groups, sorted and distinct
"""

from collections.abc import Callable

import jax
import numpy as np

from pbcs_jax.baselines.inputs.candidates import InputCandidates
from pbcs_jax.baselines.inputs.f_score import f_score
from pbcs_jax.baselines.inputs.greedy import greedy
from pbcs_jax.baselines.inputs.mrmr import mrmr
from pbcs_jax.baselines.inputs.mutual_information import mutual_information
from pbcs_jax.baselines.inputs.uniform import uniform

Select = Callable[[jax.Array, InputCandidates, int], np.ndarray]

_METHODS = (uniform, f_score, mutual_information, mrmr, greedy)
INPUT_BASELINES: dict[str, Select] = {method.__name__: method for method in _METHODS}

__all__ = ["INPUT_BASELINES", "InputCandidates", "Select", *INPUT_BASELINES]
