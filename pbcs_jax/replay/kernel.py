"""PBCS by ridge regression as a pure function: what reduces a chunk, and orders a coreset.

The same outer loop and objective as `select_coreset(objective="kernel")`, within one compiled
program, so that a stream of chunks compiles once, and several streams go side by side (`vmap`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pbcs_jax.objectives.embeddings import normalise
from pbcs_jax.objectives.exchange import (
    Learner,
    Outer,
    best_addition,
    nothing_chosen,
    swap_samples,
)
from pbcs_jax.objectives.sample_kernel import Kernel, gather, kernel_objective
from pbcs_jax.outer import loop, masks
from pbcs_jax.outer.settings import Settings
from pbcs_jax.replay.merge_reduce import Reduce

# One mask a step tells every candidate's exact difference: few steps will do.
FEW_STEPS = Settings(num_masks=1, outer_steps=40, learning_rate=0.1, estimator="differences")


def flat(x: jax.Array) -> jax.Array:
    """`[n, ...] -> [n, d]`: the inputs are their own embeddings."""
    return x.reshape(len(x), -1).astype(jnp.float32)


def by_kernel(
    num_classes: int = 0,
    *,
    embed: Callable[[Any], jax.Array] = flat,
    ridge: float = 0.1,
    settings: Settings = FEW_STEPS,
    exchanges: int = 20,
    balanced: bool = False,
    label: Callable[[Any], jax.Array] = lambda y: y,
) -> Reduce:
    """Reduces by PBCS with ridge regression; rows count as much as their weights.

    Args:
      num_classes: C, where labels are classes 0..C-1; 0 where they are numbers.
      embed: `x [m, ...] -> [m, d]`.
      ridge: relative to the mean squared length of the embeddings.
      settings: of the outer loop.
      exchanges: at the end so many chosen samples at most are exchanged for better ones.
      balanced: whether of all classes the same number is chosen, without exchanges, see `in_order`.
      label: where `y` is more than labels, `y -> labels [m]`.

    Returns:
      `(key, x [m, ...], y [m], weights [m], size) -> indices [size]`, for `MergeReduce`.

    >>> x = jnp.array([[1.0], [1.0], [1.0], [5.0]])
    >>> chosen = by_kernel(2)(jax.random.key(0), x, jnp.array([0, 0, 0, 1]), jnp.ones(4), 2)
    >>> 3 in chosen.tolist()
    True
    """

    def reduce(key: jax.Array, x: Any, y: Any, weights: jax.Array, size: int) -> jax.Array:
        (rows,) = normalise(embed(x))
        kernel, y = Kernel(ridge=ridge), label(y)
        if balanced:
            given = {"ridge": ridge, "classes": num_classes, "settings": settings}
            return in_order(key, rows, y, weights, size, **given)
        s = probabilities(
            key, rows, y, weights, None, size, kernel=kernel, settings=settings, classes=num_classes
        )
        _, chosen = jax.lax.top_k(s, size)
        if exchanges:
            data = gather(rows, y, None, 0.0, weights, num_classes)
            learner, targets = Learner(rows, rows, ridge), data.targets.T
            free = jnp.ones(len(rows), bool), jnp.zeros(len(rows), int)
            outer = Outer(targets, targets, data.weights, *free)
            chosen, _ = swap_samples((learner,), outer, chosen, exchanges)
        return chosen

    return reduce


@partial(jax.jit, static_argnames=("size", "kernel", "settings", "classes"))
def probabilities(
    key: jax.Array,
    rows: jax.Array,
    y: jax.Array,
    weights: jax.Array | None,
    validation: tuple[jax.Array, jax.Array] | None,
    size: int,
    *,
    kernel: Kernel,
    settings: Settings,
    classes: int,
) -> jax.Array:
    """The probabilities `[n]` that PBCS ends with, compiled whole.

    Args:
      key: PRNG key, consumed.
      rows: `[n, d]` embeddings, from `embeddings.normalise`.
      y: `[n]` classes 0..C-1, or numbers.
      weights: `[n]`, how many samples each stands for; all alike if None.
      validation: `(embeddings [v, d], y [v])`, or None.
      size: K.
      kernel: the objective, with a ridge above 0.
      settings: of the outer loop.
      classes: C, or 0 for numbers.
    """
    n, estimator = len(y), settings.gradient_estimator()
    evaluate = kernel_objective(
        rows,
        y,
        kernel,
        capacity=masks.capacities(n, size)[-1],
        validation=validation,
        path=estimator.needs_path,
        differences=estimator.needs_differences,
        weights=weights,
        num_classes=classes,
    )
    state = loop.init(key, n, size, settings)
    step = lambda state, _: (loop.step(state, evaluate, settings)[0], None)  # noqa: E731
    return jax.lax.scan(step, state, None, length=settings.outer_steps)[0].probabilities


@partial(jax.jit, static_argnames=("size", "ridge", "classes", "settings"))
def in_order(
    key: jax.Array,
    rows: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    size: int,
    *,
    ridge: float,
    classes: int,
    settings: Settings = FEW_STEPS,
) -> jax.Array:
    """A coreset whose prefixes are coresets, for memories that are cut again and again.

    PBCS chooses the coreset, of all classes the same number as far as they have so many. Its order
    is that of additions: each sample is the one that lowers the loss most beside those before it,
    and the classes take turns.

    Args:
      key: PRNG key, consumed.
      rows: `[n, d]` embeddings, from `embeddings.normalise`.
      y: `[n]` classes 0..C-1.
      weights: `[n]`, how much each counts in the loss; one with 0 is not chosen.
      size: K, at most the number of weights above 0.
      ridge: of the regression.
      classes: C.
      settings: of the outer loop.

    Returns:
      `[size]` indices, the most important first.
    """
    data = gather(rows, y, None, 0.0, weights, classes)
    kernel, is_free = Kernel(ridge=ridge), weights > 0
    s = probabilities(
        key, rows, y, weights, None, size, kernel=kernel, settings=settings, classes=classes
    )
    in_class = jax.nn.one_hot(y, classes)
    # Of its class each is the first, second, ...; the first ones of all classes come first.
    ahead = (s[None, :] > s[:, None]) | ((s[None, :] == s[:, None]) & _before(len(y)))
    same = (y[:, None] == y[None, :]) & is_free[None, :]
    rank = jnp.where(is_free, jnp.sum(ahead & same, axis=1), len(y))
    _, chosen = jax.lax.top_k(s - rank, size)
    is_chosen = jnp.zeros(len(y), bool).at[chosen].set(True)

    def extend(k, carry):
        order, left, state = carry
        counts = jnp.sum(in_class[order] * (jnp.arange(size) < k)[:, None], axis=0)
        has_more = jnp.sum(in_class * left[:, None], axis=0) > 0
        turn = jnp.where(has_more, counts, jnp.inf)
        allowed = left & (turn[y] == jnp.min(turn))
        best, state = best_addition(data, ridge, state, allowed)
        return order.at[k].set(best.astype(order.dtype)), left.at[best].set(False), state

    begin = jnp.zeros(size, jnp.int32), is_chosen, nothing_chosen(data)
    return jax.lax.fori_loop(0, size, extend, begin)[0]


def _before(n: int) -> jax.Array:
    """`[n, n]`, whether the column comes before the row."""
    return jnp.arange(n)[None, :] < jnp.arange(n)[:, None]
