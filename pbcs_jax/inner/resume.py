"""Training that stops after any step and resumes, even in another process, to the same bits.

Every span of steps runs the same compiled loop, whose end is an argument: where the spans begin and
end changes nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.inner.losses import LossFn
from pbcs_jax.inner.train import Coreset, Inner, Progress, Trained, finish, is_unfinished, prepare
from pbcs_jax.nets.model import Model


def train_until(
    model: Model,
    loss_fn: LossFn,
    settings: Inner,
    key: jax.Array,
    variables: Any,
    coreset: Coreset,
    progress: Progress,
    until: jax.Array,
) -> tuple[Progress, Trained, jax.Array]:
    """`train`, up to a step.

    Args:
      model: see `nets.model.as_model`.
      loss_fn: `(outputs [B, ...], targets [B, ...]) -> [B]`.
      settings: how.
      key: PRNG key, the same for all spans of a training.
      variables: the initialisation, the same for all spans.
      coreset: the packed data.
      progress: what the span before returned, or `blank`.
      until: number of the step that this span ends with.

    Returns:
      The progress, the model as it is by now, and whether its training has ended.
    """
    start, step, back = prepare(model, loss_fn, settings, key, variables, coreset)
    here = jax.tree.map(lambda a, b: jnp.where(progress.step == 0, a, b), start, progress)
    until = jnp.minimum(until, settings.steps)
    end = jax.lax.while_loop(
        lambda p: is_unfinished(settings, p, until), lambda p: step(p)[0], here
    )
    return end, finish(back(end)), ~is_unfinished(settings, end, settings.steps)


def blank(
    model: Model, loss_fn: LossFn, settings: Inner, variables: Any, coreset: Coreset
) -> Progress:
    """Progress of the shapes of a training, before its first step; all arguments may be shapes."""

    def start(key, variables, coreset):
        return prepare(model, loss_fn, settings, key, variables, coreset)[0]

    key = jax.eval_shape(lambda: jax.random.key(0))
    shapes = jax.eval_shape(start, key, variables, coreset)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
