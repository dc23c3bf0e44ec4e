"""The objectives: each makes an `evaluate(key, masks) -> Evaluation` for the outer loop."""

from pbcs_jax.objectives.features import features_objective
from pbcs_jax.objectives.input_kernel import FeatureKernel
from pbcs_jax.objectives.network import network_objective
from pbcs_jax.objectives.sample_kernel import Kernel, kernel_objective

__all__ = [
    "FeatureKernel",
    "Kernel",
    "features_objective",
    "kernel_objective",
    "network_objective",
]
