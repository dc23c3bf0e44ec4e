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
from pbcs_jax.objectives.exchange import addition, swap_samples
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
) -> Reduce:
    """Reduces by PBCS with ridge regression; rows count as much as their weights.

    Args:
      num_classes: C, where labels are classes 0..C-1; 0 where they are numbers.
      embed: `x [m, ...] -> [m, d]`.
      ridge: relative to the mean squared length of the embeddings.
      settings: of the outer loop.
      exchanges: at the end so many chosen samples at most are exchanged for better ones.

    Returns:
      `(key, x [m, ...], y [m], weights [m], size) -> indices [size]`, for `MergeReduce`.

    >>> x = jnp.array([[1.0], [1.0], [1.0], [5.0]])
    >>> chosen = by_kernel(2)(jax.random.key(0), x, jnp.array([0, 0, 0, 1]), jnp.ones(4), 2)
    >>> 3 in chosen.tolist()
    True
    """

    def reduce(key: jax.Array, x: Any, y: Any, weights: jax.Array, size: int) -> jax.Array:
        (rows,) = normalise(embed(x))
        kernel = Kernel(ridge=ridge)
        s = probabilities(
            key, rows, y, weights, None, size, kernel=kernel, settings=settings, classes=num_classes
        )
        _, chosen = jax.lax.top_k(s, size)
        if exchanges:
            data, _ = gather(rows, y, None, 0.0, True, weights, num_classes)
            chosen = swap_samples(data, ridge, chosen, exchanges)
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


@partial(jax.jit, static_argnames=("first", "size", "ridge", "classes", "exchanges"))
def in_order(
    key: jax.Array,
    rows: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    first: int,
    size: int,
    *,
    ridge: float,
    classes: int,
    exchanges: int = 100,
) -> jax.Array:
    """A coreset whose prefixes are coresets, for memories that are cut again and again.

    PBCS chooses the first; each that follows is the addition that lowers the loss most. The first
    are in the order of such additions too, so far as that can be: each is the best of those left.

    Args:
      key: PRNG key, consumed.
      rows: `[n, d]` embeddings, from `embeddings.normalise`.
      y: `[n]` classes 0..C-1, or numbers.
      weights: `[n]`, how much each counts in the loss; one with 0 is not chosen.
      first: the size of the smallest prefix that is to be a coreset.
      size: K, at most the number of weights above 0.
      ridge: of every size.
      classes: C, or 0 for numbers.
      exchanges: of the first ones.

    Returns:
      `[size]` indices, the most important first.
    """
    data, _ = gather(rows, y, None, 0.0, True, weights, classes)
    kernel = Kernel(ridge=ridge)
    s = probabilities(
        key, rows, y, weights, None, first, kernel=kernel, settings=FEW_STEPS, classes=classes
    )
    _, start = jax.lax.top_k(jnp.where(weights > 0, s, -1.0), first)
    start = swap_samples(data, ridge, start, exchanges)
    is_first = jnp.zeros(len(y), bool).at[start].set(True)

    def extend(k, chosen):
        allowed = jnp.where(k < first, is_first, weights > 0)
        return chosen.at[k].set(addition(data, ridge, chosen, k, allowed))

    return jax.lax.fori_loop(0, size, extend, jnp.zeros(size, jnp.int32))
