"""Uniform draws of inputs: what every method has to beat."""

import jax
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.inputs.candidates import InputCandidates


@checked
def uniform(key: jax.Array, data: InputCandidates, size: int) -> np.ndarray:
    """`size` of the groups, each as likely as any other."""
    count = len(data.shares)
    return np.sort(np.asarray(jax.random.choice(key, count, (size,), replace=False)))
