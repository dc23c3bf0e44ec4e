"""Forgetting: what a network learns and unlearns again (Toneva et al., 2019)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.scores import highest
from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import Model, as_model

BATCH = 128


@checked
def forgetting(key: jax.Array, data: Candidates, size: int, epochs: int = 5) -> np.ndarray:
    """The most often forgotten: right when last seen in training, and wrong now.

    A candidate is seen once per epoch, in its mini-batch; one that is never right counts as
    forgotten more often than any other.

    Args:
      epochs: of the training that is watched, Adam at 1e-3.
    """
    model, x, y = as_model(data.model), jnp.asarray(data.x), jnp.asarray(data.y)
    return highest(count_forgetting(key, x, y, model, epochs), size)


@partial(jax.jit, static_argnames=("model", "epochs"))
def count_forgetting(
    key: jax.Array, x: jax.Array, y: jax.Array, model: Model, epochs: int
) -> jax.Array:
    """How often each candidate is forgotten in one training, `[n]`; `epochs` if never learned.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]`.
      y: `[n]` classes.
      model: the network.
      epochs: of training.
    """
    n = len(y)
    init_key, train_key = jax.random.split(key)
    watched = watch(model, x, y)
    variables = watched.init(init_key, jnp.arange(1))
    batch = min(BATCH, n)
    steps = epochs * -(-n // batch)
    settings = Inner(steps=steps, optimizer="adam", learning_rate=1e-3, batch_size=batch)
    rows = Coreset(jnp.arange(n), y, jnp.ones(n))
    end = train(watched, losses.cross_entropy, settings, train_key, variables, rows)
    return totals(end.variables["state"]["watch"], epochs)


def watch(model: Model, x: jax.Array, y: jax.Array) -> Model:
    """The same model as a function of row numbers, which counts in its state what it forgets.

    The inner loop carries a model's state along, so any training can be watched: it only needs to
    be given the numbers of the rows for inputs.
    """
    start = {"right": jnp.zeros(len(y), bool), "ever": jnp.zeros(len(y), bool)}
    start["forgotten"] = jnp.zeros(len(y), jnp.int32)

    def init(key, rows):
        variables = model.init(key, x[rows])
        return {**variables, "state": {"net": variables["state"], "watch": start}}

    def apply(variables, rows, *, key=None, train=False, mask=None):
        state = variables["state"]
        inside = {**variables, "state": state["net"]}
        outputs, inside = model.apply(inside, x[rows], key=key, train=train, mask=mask)
        if train:
            right = jnp.argmax(outputs, axis=-1) == y[rows]
            seen = rows if mask is None else jnp.where(mask, rows, len(y))  # out of range: dropped
            state = {"net": inside["state"], "watch": see(state["watch"], seen, right)}
        return outputs, {**inside, "state": state}

    return Model(init, apply)


def see(counts: dict[str, jax.Array], rows: jax.Array, right: jax.Array) -> dict[str, jax.Array]:
    """The counts after the distinct `rows [B]` were seen, `right [B]` or not."""
    was = counts["right"].at[rows].get(mode="fill", fill_value=False)
    return {
        "right": counts["right"].at[rows].set(right, mode="drop"),
        "ever": counts["ever"].at[rows].max(right, mode="drop"),
        "forgotten": counts["forgotten"].at[rows].add(was & ~right, mode="drop"),
    }


def totals(counts: dict[str, jax.Array], epochs: int) -> jax.Array:
    """Forgetting events `[n]`; `epochs`, more than there can be, for what was never right."""
    return jnp.where(counts["ever"], counts["forgotten"], epochs)
