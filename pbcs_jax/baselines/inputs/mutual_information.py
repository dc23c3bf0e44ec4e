"""Mutual information of each input with the class, by scikit-learn's nearest neighbours."""

import importlib

import jax
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.inputs.candidates import InputCandidates, best


@checked
def mutual_information(key: jax.Array, data: InputCandidates, size: int) -> np.ndarray:
    """The inputs that tell most of the class, each by itself."""
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    columns = data.columns
    varies = np.ptp(columns, axis=0) > 0  # a constant has none, and takes as long
    # Imported here: it takes a second, and few runs need it.
    scores_of = importlib.import_module("sklearn.feature_selection").mutual_info_classif
    scores = np.zeros(columns.shape[1])
    scores[varies] = scores_of(columns[:, varies], data.y, random_state=seed)
    return best(data, scores, size)
