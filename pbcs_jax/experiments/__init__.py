"""One file per experiment: config in, results out. Each can be swept over points and seeds."""

from functools import partial

from pbcs_jax.experiments import analysis, continual, features, streaming, summarization
from pbcs_jax.experiments.run import run
from pbcs_jax.experiments.sweep import swept

EXPERIMENTS = {
    "summarization": swept(partial(run, summarization.EXPERIMENT)),
    "features": swept(partial(run, features.EXPERIMENT)),
    "continual": swept(partial(run, continual.EXPERIMENT)),
    "streaming": swept(partial(run, streaming.EXPERIMENT)),
    "analysis": swept(partial(run, analysis.EXPERIMENT)),
}

__all__ = ["EXPERIMENTS"]
