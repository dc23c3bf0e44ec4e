"""What a method keeps of a task: the samples to train on, and an order for the memory."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.baselines.checked import in_order
from pbcs_jax.compute import blas
from pbcs_jax.data import Problem
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.objectives import ridge as ridge_lib
from pbcs_jax.objectives.embeddings import embed
from pbcs_jax.replay import kernel as kernel_lib


class Pick(NamedTuple):
    """Rows of a task.

    Attributes:
      kept: `[m]`, what a network may be trained on, and a memory is chosen from.
      order: `[k]` of these, the most important for the memory first.
    """

    kept: np.ndarray
    order: np.ndarray


OPTIONS = {"greedy": {"start_size": 1, "inner_reg": 1e-3, "weight_steps": 1}}
"""Of the baselines: what is published for continual learning."""
Picker = Callable[[jax.Array, Problem, int], Pick]
"""`(key, task, size) -> Pick`, where the memory asks for the first `size`."""


def picker(config: ConfigDict, name: str) -> Picker:
    """The picker of a method: 'pbcs', or one of the baselines."""
    return _by_pbcs(config) if name == "pbcs" else _by_baseline(config, name)


def num_kept(config: ConfigDict, n: int) -> int:
    """How many of a task's n samples are kept."""
    return max(1, round(config.continual.keep * n))


def is_corrupted(config: ConfigDict) -> bool:
    """Whether the tasks have wrong labels or unbalanced classes."""
    return config.noise.kind != "none" or config.imbalance.factor > 1


def _by_baseline(config: ConfigDict, name: str) -> Picker:
    choose, options = BASELINES[name], OPTIONS.get(name, {})

    def pick(key: jax.Array, task: Problem, size: int) -> Pick:
        model = _model(config, task)
        keep_key, order_key = jax.random.split(key)

        def candidates(rows):
            return Candidates(
                task.x[rows], task.y[rows], task.num_classes, model, task.validation, scale=False
            )

        kept = np.arange(len(task.y))
        if config.continual.train_on == "selected":
            kept = choose(keep_key, candidates(kept), num_kept(config, len(kept)), **options)
        size = min(size, len(kept))
        order = in_order(choose)(order_key, candidates(kept), size, **options)
        return Pick(kept, kept[order])

    return pick


def _by_pbcs(config: ConfigDict) -> Picker:
    """By ridge regression: many are kept where labels or classes are not to be trusted.

    Of these an order is made for the memory, with the candidates as outer data, each class as much
    as in the held-out data.
    """
    kernel = config_lib.kernel(config)
    given = config.continual
    narrowed = given.keep < 1 and (given.train_on == "selected" or is_corrupted(config))

    def pick(key: jax.Array, task: Problem, size: int) -> Pick:
        n, classes = len(task.y), task.num_classes
        embed_key, ridge_key, keep_key = jax.random.split(key, 3)
        x, y = jnp.asarray(task.x), jnp.asarray(task.y)
        validation = (jnp.asarray(task.x_val), jnp.asarray(task.y_val))
        model = _model(config, task)
        with blas.one_thread():
            rows = embed(kernel.embeddings, embed_key, x, y, model, size, validation)
            outer = rows[1], validation[1].astype(y.dtype)
            kept = np.arange(n)
            if narrowed:
                many = num_kept(config, n)
                ridge = kernel.ridge or ridge_lib.choose_ridge(ridge_key, rows[0], y, many, outer)
                s = kernel_lib.probabilities(
                    keep_key,
                    rows[0],
                    y,
                    None,
                    outer,
                    many,
                    kernel=dataclasses.replace(kernel, ridge=ridge),
                    settings=config_lib.kernel_loop(config, n),
                    classes=classes,
                )
                kept = np.sort(np.argsort(-np.asarray(s), kind="stable")[:many])
            size = min(size, len(kept))
            share = ridge_lib.like_validation(y[kept], outer[1], classes)
            weights = jnp.zeros(n).at[kept].set(n * share)
            order = kernel_lib.in_order(
                rows[0], y, weights, size, ridge=given.order_ridge, classes=classes
            )
        return Pick(kept, np.asarray(order))

    return pick


def _model(config: ConfigDict, task: Problem):
    given = config.model
    return config_lib.make_net(given.name, given.width, given.dropout, task.num_classes)
