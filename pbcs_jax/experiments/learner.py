"""Networks that learn one task, or one chunk, after another, with a memory beside it.

Several networks go side by side: S seeds, which differ in their data, times B betas, which share
them. A training is compiled whole, all of its epochs and batches, for fixed shapes of data and
memory: what follows with the same shapes is not compiled again.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import Model, Variables
from pbcs_jax.replay.base import Rows

_TEST_CHUNK = 1000


class Replay(NamedTuple):
    """A memory as the loss sees it.

    Attributes:
      rows: `x [S, m, ...]`, `y [S, m]`, `weights [S, m]`.
      logits: `[S, B, m, C]`, stored outputs of the networks (DER++), or None.
    """

    rows: Rows
    logits: jax.Array | None = None


class Learner(NamedTuple):
    """How networks are trained.

    Attributes:
      model: see `nets.model.as_model`.
      inner: of each task.
      alpha: weight of the distance to stored logits.
      at_once: networks that are trained side by side; the others follow.
    """

    model: Model
    inner: Inner
    alpha: float
    at_once: int


@partial(jax.jit, static_argnames=("model", "num_betas"))
def fresh(keys: jax.Array, x: jax.Array, model: Model, num_betas: int) -> Variables:
    """Variables `[S, B, ...]`, alike for all betas of a seed, as PyTorch initialises them.

    Args:
      keys: `[S]` PRNG keys, consumed.
      x: `[1, ...]`, for the shape.
      model: whose kernels end in `[..., outputs]`.
      num_betas: B.
    """
    variables = jax.vmap(lambda key: _uniform(key, model.init(key, x)))(keys)
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], num_betas, axis=1), variables)


def _uniform(key: jax.Array, variables: Variables) -> Variables:
    """Kernels and biases uniform within 1 / sqrt(inputs), the protocol's initialisation."""

    def layer(tree, key):
        if not isinstance(tree, dict):
            return tree
        if "kernel" in tree:
            bound = 1 / math.sqrt(math.prod(tree["kernel"].shape[:-1]))
            keys = jax.random.split(key, len(tree))
            return {
                name: jax.random.uniform(k, leaf.shape, leaf.dtype, -bound, bound)
                for (name, leaf), k in zip(sorted(tree.items()), keys, strict=True)
            }
        keys = jax.random.split(key, max(len(tree), 1))
        return {n: layer(v, k) for (n, v), k in zip(sorted(tree.items()), keys, strict=True)}

    return {**variables, "params": layer(variables["params"], key)}


@partial(jax.jit, static_argnames="learner")
def learn(
    learner: Learner,
    keys: jax.Array,
    betas: jax.Array,
    variables: Variables,
    task: Coreset,
    replay: Replay,
) -> Variables:
    """The networks after one more task, each by a fresh optimiser.

    The loss is the mean over a batch of the task plus beta times the weighted sum over the whole
    memory.

    Args:
      learner: how.
      keys: `[S]` PRNG keys, consumed; the same for all betas.
      betas: `[B]`.
      variables: `[S, B, ...]`.
      task: `x [S, n, ...]`, `y [S, n]`, `weights [S, n]`, 0 for padding.
      replay: the memory.
    """
    model, cross_entropy = learner.model, losses.get("cross_entropy")
    num_seeds, num_betas = len(keys), len(betas)

    def one(which):
        s, b = which // num_betas, which % num_betas
        x, y, weights = jax.tree.map(lambda leaf: leaf[s], replay.rows)

        def rehearsal(key, variables):
            outputs, variables = model.apply(variables, x, key=key, train=True, mask=weights > 0)
            loss = betas[b] * (weights @ cross_entropy(outputs, y))
            if replay.logits is not None:
                distance = jnp.mean((outputs - replay.logits[s, b]) ** 2, axis=1)
                is_stored = weights > 0
                loss += learner.alpha * (is_stored @ distance) / jnp.maximum(is_stored.sum(), 1)
            return loss, variables

        own = jax.tree.map(lambda leaf: leaf[s, b], variables)
        data = jax.tree.map(lambda leaf: leaf[s], task)
        trained = train(model, cross_entropy, learner.inner, keys[s], own, data, rehearsal)
        return trained.variables

    at_once = learner.at_once if learner.at_once > 1 else None  # a batch of one costs 5 % more
    trained = jax.lax.map(one, jnp.arange(num_seeds * num_betas), batch_size=at_once)
    return jax.tree.map(lambda leaf: leaf.reshape(num_seeds, num_betas, *leaf.shape[1:]), trained)


@partial(jax.jit, static_argnames="model")
def logits(model: Model, variables: Variables, x: jax.Array) -> jax.Array:
    """Outputs `[S, B, m, C]` of the networks for `x [S, m, ...]`."""

    def of_seed(given):
        own, rows = given

        def of_beta(one):
            return in_chunks(lambda part: model.apply(one, part)[0], rows, _TEST_CHUNK)

        return jax.lax.map(of_beta, own)

    return jax.lax.map(of_seed, (variables, x))


def accuracy(model: Model, variables: Variables, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Fractions `[B]` of `x [m, ...]` whose label `y [m]` a seed's networks `[B, ...]` give."""
    of_one = jax.tree.map(lambda leaf: leaf[None], variables)
    found = np.asarray(logits(model, of_one, jnp.asarray(x[None])))[0].argmax(-1)
    return np.mean(found == y, axis=-1)
