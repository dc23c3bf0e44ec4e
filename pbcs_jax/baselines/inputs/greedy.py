"""Greedy bilevel selection, after Borsos et al. 2020, over inputs in place of samples.

One input after another is added, that with the most negative gradient of the outer loss; none ever
leaves. The inner problem is the library's own kernel regression, whose gradient is exact. Weights,
which the original learns for samples, have no meaning for inputs that are kept or not.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.inputs.candidates import InputCandidates
from pbcs_jax.objectives import input_kernel

# A full sum of distances cannot be told from rounding when nothing is chosen: this much of all is.
START = 1e-3


@checked
def greedy(key: jax.Array, data: InputCandidates, size: int, samples: int = 500) -> np.ndarray:
    """Adds the input that lowers the leave-one-out error most, to first order, `size` times."""
    rows = input_kernel.gather(data.x, data.y, data.groups)
    count = int(rows.groups.max()) + 1
    choose_key, key = jax.random.split(key)
    bandwidth, ridge = input_kernel.choose(choose_key, rows, size, samples)
    settings = input_kernel.InputKernel(bandwidth, ridge, samples=samples)
    evaluate = input_kernel.input_kernel_objective(rows, settings, path=True)
    nothing = jnp.full((count,), START / count, jnp.float32)
    chosen = np.sort(np.asarray(_choose(evaluate, key, nothing, size)))
    _choose.clear_cache()  # see `loop.forget`
    return chosen


@partial(jax.jit, static_argnames="size")
def _choose(evaluate, key: jax.Array, nothing: jax.Array, size: int) -> jax.Array:
    def add(step, chosen):
        mask = jnp.maximum(chosen, nothing)
        slopes = evaluate(jax.random.fold_in(key, step), mask[None]).path_gradients[0]
        return chosen.at[jnp.argmin(jnp.where(chosen > 0, jnp.inf, slopes))].set(1.0)

    chosen = jax.lax.fori_loop(0, size, add, jnp.zeros_like(nothing))
    return jnp.flatnonzero(chosen, size=size)
