"""Probabilistic bilevel coreset selection in JAX: the public API.

import pbcs_jax as pbcs
"""

from typing import Any

from pbcs_jax.choices import Inputs, Samples
from pbcs_jax.compute.mesh import mask_mesh, use_all_cores
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives import (
    InputKernel,
    Kernel,
    Network,
    input_kernel_objective,
    kernel_objective,
    network_objective,
)
from pbcs_jax.outer.base import Estimator, Evaluation
from pbcs_jax.outer.draw import draw_coreset
from pbcs_jax.outer.estimators import policy_gradient
from pbcs_jax.outer.loop import DivergenceError, State, init, run, step
from pbcs_jax.outer.masks import mask_log_prob, mask_score, sample_masks
from pbcs_jax.outer.projection import project
from pbcs_jax.outer.settings import Settings
from pbcs_jax.portfolio import Auto, Choice, Plan
from pbcs_jax.result import Result, Suspects
from pbcs_jax.rows import Rows
from pbcs_jax.select import select_coreset, select_features, soften

# Their names before samples and inputs were one.
FeatureKernel, features_objective = InputKernel, network_objective

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """The classes in scikit-learn's style, which take a second to import."""
    if name in ("CoresetSelector", "InputSelector"):
        from pbcs_jax import selectors

        return getattr(selectors, name)
    raise AttributeError(f"module 'pbcs_jax' has no attribute {name!r}")


__all__ = [
    "Auto",
    "Choice",
    "Compute",
    "CoresetSelector",
    "DivergenceError",
    "Estimator",
    "Evaluation",
    "FeatureKernel",
    "Inner",
    "InputKernel",
    "InputSelector",
    "Inputs",
    "Kernel",
    "Network",
    "Plan",
    "Result",
    "Rows",
    "Samples",
    "Settings",
    "State",
    "Suspects",
    "UserError",
    "draw_coreset",
    "features_objective",
    "init",
    "input_kernel_objective",
    "kernel_objective",
    "mask_log_prob",
    "mask_mesh",
    "mask_score",
    "network_objective",
    "policy_gradient",
    "project",
    "run",
    "sample_masks",
    "select_coreset",
    "select_features",
    "soften",
    "step",
    "use_all_cores",
]
