"""One file an experiment: config in, results out."""

from pbcs_jax.experiments import summarization

EXPERIMENTS = {"summarization": summarization.run}

__all__ = ["EXPERIMENTS"]
