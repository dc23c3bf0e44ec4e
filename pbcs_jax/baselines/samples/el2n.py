"""EL2N: how far the predictions are from the labels early in training (Paul et al., 2021)."""

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.proxy import view
from pbcs_jax.baselines.samples.scores import highest
from pbcs_jax.inner import losses
from pbcs_jax.objectives.embeddings import pretrain


@checked
def el2n(
    key: jax.Array, data: Candidates, size: int, trainings: int = 3, steps: int = 100
) -> np.ndarray:
    """The largest `|softmax - one-hot|`, a mean over a few short trainings on all candidates.

    Args:
      trainings: networks, each from its own initialisation.
      steps: mini-batch steps of 128 of each.
    """
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    runs = []
    for run_key in jax.random.split(key, trainings):
        variables = pretrain(run_key, x, y, data.model, steps)
        runs.append(error_norm(view(data, variables).logits, y))
    return highest(np.mean(runs, axis=0), size)


def error_norm(logits: jax.Array, y: jax.Array) -> jax.Array:
    """|softmax - one-hot|, `[n]`, of `logits [n, C]` and classes `y [n]`."""
    return jnp.sqrt(losses.brier(logits, y))
