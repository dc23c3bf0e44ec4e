"""PBCS by ridge regression as a pure function: what reduces a chunk, and orders a coreset.

`probabilities` is the same outer loop and objective as `select_coreset(objective="kernel")`, within
one compiled program, so that a stream of chunks compiles once, and several streams go side by side
(`vmap`). `in_order` is for coresets that are cut to their first samples.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.objectives.embeddings import normalise
from pbcs_jax.objectives.exchange import (
    Learner,
    Outer,
    swap_samples,
)
from pbcs_jax.objectives.sample_kernel import Kernel, gather, kernel_objective
from pbcs_jax.outer import loop, masks
from pbcs_jax.outer.settings import Settings
from pbcs_jax.replay.merge_reduce import Reduce

# One mask a step tells every candidate's exact difference: few steps will do.
FEW_STEPS = Settings(num_masks=1, outer_steps=40, learning_rate=0.1, estimator="differences")
_TINY = 1e-12


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
      balanced: whether of all classes the same number is chosen, by additions alone, see
        `in_order`: many times as fast, without masks and exchanges.
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
            return in_order(rows, y, weights, size, ridge=ridge, classes=num_classes)
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


@partial(jax.jit, static_argnames=("size", "classes"))
def in_order(
    rows: jax.Array, y: jax.Array, weights: jax.Array, size: int, *, ridge: float, classes: int
) -> jax.Array:
    """A coreset whose prefixes are coresets, for memories that are cut again and again.

    Each sample is the one that, beside those before it, lowers the loss most; the classes take
    turns. The loss is the share of the targets' squares that the regression on the chosen ones
    leaves open if its outputs may be scaled: ten samples alone give outputs that are too small, and
    the plain squared error would ask for long embeddings in place of typical ones.

    With C what the chosen ones leave unexplained, a sample j changes the outputs by C_.j times a
    step. All n losses follow from C' targets, C' outputs and the squares of C's columns, each of
    which an addition changes by one product with the Gram matrix: no C is ever made.

    Args:
      rows: `[n, d]` embeddings, from `embeddings.normalise`.
      y: `[n]` classes 0..C-1.
      weights: `[n]`, how much each counts in the loss; one with 0 is not chosen.
      size: K, at most the number of weights above 0.
      ridge: of the regression.
      classes: C.

    Returns:
      `[size]` indices, the most important first.
    """
    data = gather(rows, y, None, 0.0, weights, classes)
    gram, targets, share = data.rows, data.targets.T, data.weights
    in_class = jax.nn.one_hot(y, classes)

    def extend(k, carry):
        order, left, factor, now = carry
        counts = jnp.sum(in_class[order] * (jnp.arange(size) < k)[:, None], axis=0)
        has_more = jnp.sum(in_class * left[:, None], axis=0) > 0
        turn = jnp.where(has_more, counts, jnp.inf)
        allowed = left & (turn[y] == jnp.min(turn))
        pivots = now.lengths + ridge
        steps = (targets - now.outputs) / pivots[:, None]
        match = share @ jnp.sum(now.outputs * targets, axis=1)
        match += jnp.sum(now.to_targets * steps, axis=1)
        square = share @ jnp.sum(now.outputs**2, axis=1)
        square += 2 * jnp.sum(now.to_outputs * steps, axis=1)
        square += now.squares * jnp.sum(steps**2, axis=1)
        explained = match * jnp.abs(match) / jnp.maximum(square, _TINY)
        best = jnp.argmax(jnp.where(allowed, explained, -jnp.inf))

        pivot, step = pivots[best], steps[best]
        column = gram[best] - factor[:, best] @ factor
        weighted = share * column
        image = gram @ weighted - (factor @ weighted) @ factor
        along = (now.to_outputs[best] + now.squares[best] * step) / pivot
        now = _Open(
            now.outputs + column[:, None] * step,
            now.to_targets - column[:, None] * now.to_targets[best] / pivot,
            now.to_outputs + image[:, None] * step - column[:, None] * along,
            now.squares - 2 * column * image / pivot + (column / pivot) ** 2 * now.squares[best],
            now.lengths - column**2 / pivot,
        )
        factor = factor.at[k].set(column / jnp.sqrt(pivot))
        return order.at[k].set(best.astype(order.dtype)), left.at[best].set(False), factor, now

    nothing = _Open(
        jnp.zeros_like(targets),
        gram @ (share[:, None] * targets),
        jnp.zeros_like(targets),
        gram**2 @ share,
        jnp.diagonal(gram),
    )
    begin = jnp.zeros(size, jnp.int32), weights > 0, jnp.zeros((size, len(y))), nothing
    return jax.lax.fori_loop(0, size, extend, begin)[0]


class _Open(NamedTuple):
    """What the chosen samples leave open, with C `[n, n]` the products that they do not explain.

    Attributes:
      outputs: `[n, c]`.
      to_targets: C' (weights targets), `[n, c]`.
      to_outputs: C' (weights outputs), `[n, c]`.
      squares: weighted squared lengths of the columns of C, `[n]`.
      lengths: the diagonal of C, `[n]`.
    """

    outputs: jax.Array
    to_targets: jax.Array
    to_outputs: jax.Array
    squares: jax.Array
    lengths: jax.Array
