"""Other ways to choose: one file per method, all with one signature.

select(key, data: Candidates, size) -> indices [size], sorted and distinct; `whole` returns all
"""

from collections.abc import Callable

import jax
import numpy as np

from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.craig import craig
from pbcs_jax.baselines.samples.el2n import el2n
from pbcs_jax.baselines.samples.forgetting import forgetting
from pbcs_jax.baselines.samples.gradient_matching import gradient_matching
from pbcs_jax.baselines.samples.greedy import greedy
from pbcs_jax.baselines.samples.hardest import hardest
from pbcs_jax.baselines.samples.herding import herding
from pbcs_jax.baselines.samples.kcenter import kcenter
from pbcs_jax.baselines.samples.moderate import moderate
from pbcs_jax.baselines.samples.stratified import stratified
from pbcs_jax.baselines.samples.uniform import uniform
from pbcs_jax.baselines.samples.whole import whole

Select = Callable[[jax.Array, Candidates, int], np.ndarray]

# Experiments fold their keys by the index in here: a new method goes to the end.
_METHODS = (
    uniform,
    whole,
    kcenter,
    herding,
    hardest,
    greedy,
    el2n,
    forgetting,
    craig,
    moderate,
    stratified,
    gradient_matching,
)
BASELINES: dict[str, Select] = {method.__name__: method for method in _METHODS}

__all__ = ["BASELINES", "Candidates", "Select", *BASELINES]
