"""Short trainings on what was chosen: how good networks are on candidates that they never saw."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets import MLP, ConvNet
from pbcs_jax.nets.model import as_model
from pbcs_jax.portfolio.facts import Data, Facts

FAR = 4.0
"""Times as many products: so much cheaper is worth another network's view."""
STEPS = 300
LARGEST_BATCH = 64
_CHUNK = 256
SMALLEST_PICTURE = 16
"""The side of the smallest picture that the ConvNet takes."""
FITTED = 0.5
"""How much a validation sample counts, which some selections have fitted."""
OTHERS = 2.0
"""Samples of a class that the mean recall of all classes stands for."""


def networks(facts: Facts, model: Any) -> list[tuple[Any, Inner]]:
    """The networks that judge, and how each is trained: the user's alone, or two very different.

    A coreset for a network that nobody has named yet should suit a deep one and a linear one.
    """
    batch = LARGEST_BATCH if facts.size > LARGEST_BATCH else 0
    short = Inner(STEPS, "adam", 0.002, batch_size=batch, shared_init=False)
    deep = dataclasses.replace(short, weight_decay=0.001)
    if model is not None:
        return [(model, deep)]
    linear = MLP(num_classes=outputs(facts), hidden=())
    return [
        (default_network(facts), deep),
        (linear, dataclasses.replace(short, learning_rate=0.01)),
    ]


def default_network(facts: Facts) -> Any:
    """A small ConvNet for pictures, else an MLP."""
    if facts.pictures and min(facts.shape[:2]) >= SMALLEST_PICTURE:
        return ConvNet(num_classes=outputs(facts), width=8)
    return MLP(num_classes=outputs(facts))


def cheap_network(facts: Facts, model: Any, row: np.ndarray) -> Any:
    """The network for tangents: the user's, or the default one if that is far cheaper."""
    default = default_network(facts)
    if model is None or products(model, row) > FAR * products(default, row):
        return default
    return model


def products(model: Any, row: np.ndarray) -> float:
    """Multiplications and additions of a network per sample, forward."""
    model, row = as_model(model), jnp.asarray(row)
    variables = jax.eval_shape(model.init, jax.random.key(0), row)
    forward = jax.jit(lambda variables, row: model.apply(variables, row)[0])
    cost = forward.lower(variables, row).cost_analysis() or {}
    return float(cost.get("flops", 0.0)) or 1e6


def outputs(facts: Facts) -> int:
    """How many a network has."""
    return max(facts.num_classes, 1)


class Judge:
    """Trains networks on coresets; scores are accuracies, or 1 - error of a regression.

    Every coreset fills `size` rows: of a smaller one some samples are there more often, so that one
    compiled program serves all sizes.

    Args:
      key: PRNG key, consumed.
      data: the pool.
      judges: models and how they are trained, see `networks`.
      size: of the largest coreset.
      believed: `[n]` bool, whose label counts; None is all of them.
    """

    def __init__(
        self,
        key: jax.Array,
        data: Data,
        judges: Sequence[tuple[Any, Inner]],
        size: int,
        believed: np.ndarray | None = None,
    ):
        self._key, self._data, self._size = key, data, size
        self.believed = np.ones(len(data.y), bool) if believed is None else believed
        self._mesh = mesh_lib.mask_mesh(jax.local_devices())
        outer = [data.x[data.outer]]
        if data.validation is not None:
            outer.append(np.asarray(data.validation[0], outer[0].dtype))
        shared = (data.x, data.y, np.concatenate(outer))
        self._shared = mesh_lib.replicate(jax.tree.map(jnp.asarray, shared), self._mesh)
        self._programs = [self._program(*one) for one in judges]
        self.num_judges = len(judges)

    def _program(self, model: Any, inner: Inner):
        model = as_model(model)
        classes = is_classes(self._data.y)
        loss_fn = losses.cross_entropy if classes else losses.squared_error

        def one(shared, own):
            x, y, outer = shared
            indices, key = own
            init_key, train_key = jax.random.split(key)
            variables = model.init(init_key, x[:1])
            coreset = Coreset(x[indices], y[indices], jnp.ones(len(indices)))
            trained = train(model, loss_fn, inner, train_key, variables, coreset)
            found = in_chunks(lambda rows: model.apply(trained.variables, rows)[0], outer, _CHUNK)
            return jnp.argmax(found, axis=1) if classes else found.reshape(len(outer), -1)

        return jax.jit(mesh_lib.map_masks(one, self._mesh, 1))

    def __call__(self, chosen: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
        """`[judges, seeds]` scores; a seed is one initialisation of every judge."""
        rows = np.resize(np.asarray(chosen, np.int32), self._size)
        keys = jnp.stack([jax.random.fold_in(self._key, seed) for seed in seeds])
        own = np.broadcast_to(rows, (len(seeds), self._size)), keys
        answers = [np.asarray(program(self._shared, own)) for program in self._programs]
        return np.array([[self._score(chosen, one) for one in found] for found in answers])

    def _score(self, chosen: np.ndarray, answers: np.ndarray) -> float:
        data = self._data
        m = len(data.outer)
        unseen = self.believed[data.outer] & ~np.isin(data.outer, chosen)
        found = [(data.y[data.outer][unseen], answers[:m][unseen], 1.0)]
        if data.validation is not None:
            found.append((np.asarray(data.validation[1]), answers[m:], FITTED))
        if data.num_classes:
            return mean_recall(found, data.shares)
        errors = [trust * np.sum((a.reshape(y.shape) - y) ** 2) for y, a, trust in found]
        lengths = [trust * np.sum(y**2) for y, _, trust in found]
        return float(1 - sum(errors) / max(sum(lengths), 1e-12))


def mean_recall(found: Sequence[tuple[np.ndarray, np.ndarray, float]], shares: np.ndarray) -> float:
    """The recall of each class by its share.

    A class that has few left to be judged by is judged in part by the others.

    Args:
      found: labels, answers, and how much they count.
      shares: `[C]`, they add up to 1.
    """
    counts, right = np.zeros(len(shares)), np.zeros(len(shares))
    for y, answers, trust in found:
        counts += trust * np.bincount(y, minlength=len(shares))
        right += trust * np.bincount(y[answers == y], minlength=len(shares))
    known = np.sum(shares[counts > 0])
    if known == 0:  # all candidates were chosen: nothing is left to judge by
        return 0.0
    of_all = np.sum(shares * right / np.maximum(counts, 1)) / known
    return float(np.sum(shares * (right + OTHERS * of_all) / (counts + OTHERS)))
