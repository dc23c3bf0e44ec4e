"""One file an experiment: config in, results out. Each can be swept over points and seeds."""

from pbcs_jax.experiments import features, summarization
from pbcs_jax.experiments.sweep import swept

EXPERIMENTS = {"summarization": swept(summarization.run), "features": swept(features.run)}

__all__ = ["EXPERIMENTS"]
