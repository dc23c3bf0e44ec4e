"""Where the samples come from: sources, corruption, and the selection problem made of them."""

from pbcs_jax.data.corruption import imbalance, label_noise
from pbcs_jax.data.fingerprints import fingerprint
from pbcs_jax.data.problem import Problem, make_problem
from pbcs_jax.data.sources import Dataset, load

__all__ = [
    "Dataset",
    "Problem",
    "fingerprint",
    "imbalance",
    "label_noise",
    "load",
    "make_problem",
]
