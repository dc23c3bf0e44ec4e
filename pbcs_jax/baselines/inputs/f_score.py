"""F-score: how far apart the classes' means of an input are, over its spread within them."""

import importlib

import jax
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.inputs.candidates import InputCandidates, best


@checked
def f_score(key: jax.Array, data: InputCandidates, size: int) -> np.ndarray:
    """The inputs with the largest F statistic of an analysis of variance, each by itself."""
    del key  # nothing here is random
    return best(data, statistics(data), size)


def statistics(data: InputCandidates) -> np.ndarray:
    """F of each input `[d]`; 0 for a constant one."""
    # Imported here: it takes a second, and few runs need it.
    scores_of = importlib.import_module("sklearn.feature_selection").f_classif
    with np.errstate(divide="ignore", invalid="ignore"):
        varies = np.ptp(data.columns, axis=0) > 0
        found = np.zeros(len(varies))
        found[varies] = scores_of(data.columns[:, varies], data.y)[0]
    return found
