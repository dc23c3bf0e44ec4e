"""Other ways to choose: one file a method, all with one signature.

select(key, data: Candidates, size) -> indices [size], sorted and distinct; only `whole` gives more
"""

from collections.abc import Callable

import jax
import numpy as np

from pbcs_jax.baselines.candidates import Candidates
from pbcs_jax.baselines.craig import craig
from pbcs_jax.baselines.el2n import el2n
from pbcs_jax.baselines.forgetting import forgetting
from pbcs_jax.baselines.greedy import greedy
from pbcs_jax.baselines.hardest import hardest
from pbcs_jax.baselines.herding import herding
from pbcs_jax.baselines.kcenter import kcenter
from pbcs_jax.baselines.moderate import moderate
from pbcs_jax.baselines.uniform import uniform
from pbcs_jax.baselines.whole import whole

Select = Callable[[jax.Array, Candidates, int], np.ndarray]

BASELINES: dict[str, Select] = {
    "uniform": uniform,
    "whole": whole,
    "kcenter": kcenter,
    "herding": herding,
    "hardest": hardest,
    "greedy": greedy,
    "el2n": el2n,
    "forgetting": forgetting,
    "craig": craig,
    "moderate": moderate,
}

__all__ = ["BASELINES", "Candidates", "Select", *BASELINES]
