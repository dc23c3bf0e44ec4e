"""Probabilistic bilevel coreset selection in JAX: the public API.

import pbcs_jax as pbcs
"""

from pbcs_jax.compute.mesh import mask_mesh, use_all_cores
from pbcs_jax.errors import UserError
from pbcs_jax.features import select_features
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives import (
    FeatureKernel,
    Kernel,
    features_objective,
    kernel_objective,
    network_objective,
)
from pbcs_jax.outer.draw import draw_coreset
from pbcs_jax.outer.estimators import Estimator, Evaluation, policy_gradient
from pbcs_jax.outer.loop import DivergenceError, Result, State, init, run, step
from pbcs_jax.outer.masks import mask_log_prob, mask_score, sample_masks
from pbcs_jax.outer.projection import project
from pbcs_jax.outer.settings import Settings
from pbcs_jax.select import select_coreset

__all__ = [
    "DivergenceError",
    "Estimator",
    "Evaluation",
    "FeatureKernel",
    "Inner",
    "Kernel",
    "Result",
    "Settings",
    "State",
    "UserError",
    "draw_coreset",
    "features_objective",
    "init",
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
    "step",
    "use_all_cores",
]
