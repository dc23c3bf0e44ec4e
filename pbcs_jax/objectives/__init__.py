"""The objectives: each makes an `evaluate(key, masks) -> Evaluation` for the outer loop.

`Network`, `Kernel` and `InputKernel` are values with the settings of one objective each, and two
methods: `loop_settings(n, size, estimator)`, the outer loop's settings where the user sets none,
and `build(...)`, which returns the objective of given data and what improves its coreset at the
end, or None.
"""

from pbcs_jax.objectives.input_kernel import InputKernel, input_kernel_objective
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.objectives.sample_kernel import Kernel, kernel_objective

__all__ = [
    "InputKernel",
    "Kernel",
    "Network",
    "input_kernel_objective",
    "kernel_objective",
    "network_objective",
]
