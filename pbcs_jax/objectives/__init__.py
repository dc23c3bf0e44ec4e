"""The objectives: each makes an `evaluate(key, masks) -> Evaluation` for the outer loop."""

from pbcs_jax.objectives.network import network_objective

__all__ = ["network_objective"]
