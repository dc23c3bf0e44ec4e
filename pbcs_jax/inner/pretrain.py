"""A network trained once on given data, for its embeddings or its predictions."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import Model, Variables, as_model

# Few, so that wrong labels are not learned by heart.
FEWEST_STEPS = 300


def pretrain(
    key: jax.Array, x: jax.Array, y: jax.Array, model: Any, steps: int = FEWEST_STEPS
) -> Variables:
    """The variables of a network trained on (x, y) by Adam, compiled once for a model and a shape.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]`.
      y: `[n]` classes, or `[n, ...]` targets.
      model: see `as_model`.
      steps: mini-batch steps.
    """
    return _pretrain(key, jnp.asarray(x), jnp.asarray(y), as_model(model), steps)


@partial(jax.jit, static_argnames=("model", "steps"))
def _pretrain(key, x, y, model: Model, steps: int):
    loss = "cross_entropy" if jnp.issubdtype(y.dtype, jnp.integer) else "squared_error"
    settings = Inner(steps=steps, optimizer="adam", learning_rate=1e-3, batch_size=min(128, len(x)))
    init_key, train_key = jax.random.split(key)
    variables = model.init(init_key, x[:1])
    everything = Coreset(x, y, jnp.ones(len(x)))
    return train(model, losses.get(loss), settings, train_key, variables, everything).variables
