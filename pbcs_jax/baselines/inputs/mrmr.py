"""mRMR: minimum redundancy, maximum relevance (Ding and Peng 2005, the quotient with F)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.inputs.candidates import InputCandidates
from pbcs_jax.baselines.inputs.f_score import statistics

# Of an input that is alike to none chosen, the redundancy would be 0 and the quotient infinite.
SMALLEST = 1e-3


@checked
def mrmr(key: jax.Array, data: InputCandidates, size: int) -> np.ndarray:
    """One input after another: the largest F over the mean |correlation| with those chosen."""
    del key  # nothing here is random
    shares = data.shares
    centred = data.columns - data.columns.mean(0)
    centred /= np.maximum(np.linalg.norm(centred, axis=0), 1e-12)
    alike = shares @ np.abs(centred.T @ centred) @ shares.T
    return np.sort(np.asarray(_choose(shares @ statistics(data), alike, size)))


@partial(jax.jit, static_argnames="size")
def _choose(relevance: jax.Array, alike: jax.Array, size: int) -> jax.Array:
    def add(step, chosen):
        redundancy = jnp.maximum(chosen @ alike / jnp.maximum(step, 1), SMALLEST)
        score = jnp.where(step > 0, relevance / redundancy, relevance)
        return chosen.at[jnp.argmax(jnp.where(chosen > 0, -jnp.inf, score))].set(1.0)

    chosen = jax.lax.fori_loop(0, size, add, jnp.zeros(len(relevance)))
    return jnp.flatnonzero(chosen, size=size)
