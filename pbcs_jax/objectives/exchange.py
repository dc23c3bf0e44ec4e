"""Exchanges at the end of a selection: swaps that lower the outer loss, until none helps.

Probabilities are learnt for masks drawn at random; exchanges are for the one mask that is used. The
policy gradient searches widely and ends near an optimum; exchanges end in one. One loop serves
samples and inputs; they differ in how the next swap is proposed.

**Samples.** The kernel's outer loss (squared error) of all coresets that differ from a given one in
one sample has a closed form. With G the products of embeddings, S the chosen ones,
P = (G_SS + ridge)^-1, A = G_.S P and f = A t_S:

    without i    f - A_i a_i                  a_i = (P t)_i / P_ii
    with j       f + C_j (t_j - f_j) / (C_jj + ridge)    C = G - A G_S., what S leaves unexplained

Both are changes of rank one, so all K removals, and all n additions after the best of them, cost
about as much as the matrix C, K n m products for n candidates and m outer examples. The loss may be
the mean over several learners, each with embeddings and a ridge of its own: what suits all of them
suits a learner that is not among them better than what suits one.

**Inputs.** There is no such form. The gradient names the swaps that are worth a trial: of the
`TRIED` chosen inputs with the largest slope and the `TRIED` others with the smallest, every pair is
evaluated exactly, and the best is kept.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.objectives.ridge import products
from pbcs_jax.outer.base import Objective

TRIED = 4

Propose = Callable[[Any, jax.Array], tuple[Any, jax.Array, jax.Array]]
"""`(now, failures) -> (now with one swap, loss before, loss after)`; `now` is any pytree, and
`failures` how many proposals in a row have not helped."""


class Learner(NamedTuple):
    """Ridge regression on embeddings of its own.

    Attributes:
      rows: `[n, d]` of the candidates.
      outer: `[m, d]` of the outer data.
      ridge: > 0.
      share: of its loss in that of all learners; one of 0 costs no time, and saves compiling the
        program again without it.
      width: of a Gaussian kernel, see `ridge.products`; None for the linear one.
    """

    rows: jax.Array
    outer: jax.Array
    ridge: jax.Array | float
    share: jax.Array | float = 1.0
    width: jax.Array | float | None = None


class Outer(NamedTuple):
    """What learners are trained on and judged by.

    Attributes:
      targets: `[n, c]` of the candidates.
      outer_targets: `[m, c]` of the outer data.
      weights: `[m]` of the outer data.
      allowed: `[n]` bool, which candidates may be chosen.
      groups: `[n]` integers: a swap stays within a group. All zeros leave it free.
    """

    targets: jax.Array
    outer_targets: jax.Array
    weights: jax.Array
    allowed: jax.Array
    groups: jax.Array


def exchange_samples(
    learners: tuple[Learner, ...],
    data: Outer,
    indices: np.ndarray,
    most: int,
    patience: int = 1,
) -> tuple[np.ndarray, float]:
    """Swaps until the outer loss falls no further.

    Args:
      learners: whose mean squared errors are added up.
      data: what they are trained on and judged by.
      indices: `[K]`, the coreset to start from.
      most: swaps at most.
      patience: how many of the cheapest removals are tried before the search ends.

    Returns:
      `[K]` sorted indices, and their loss.
    """
    chosen, loss = swap_samples(learners, data, jnp.asarray(indices), most, patience)
    return np.sort(np.asarray(chosen)), float(loss)


def exchange_inputs(
    key: jax.Array, evaluate: Objective, slopes: Objective, indices: np.ndarray, n: int, most: int
) -> np.ndarray:
    """Swaps until the outer loss of `evaluate` falls no further.

    Args:
      key: PRNG key, the same for all evaluations, which should not differ by what they draw.
      evaluate: `(key, masks [M, n]) -> Evaluation`, a `jax.tree_util.Partial`.
      slopes: the same objective with `path_gradients`.
      indices: `[K]`, the groups of inputs to start from.
      n: number of groups.
      most: swaps at most.

    Returns:
      `[K]` sorted indices.
    """
    if len(indices) == n:
        return np.sort(indices)
    mask = jnp.zeros(n, jnp.float32).at[jnp.asarray(indices)].set(1.0)
    found = np.flatnonzero(_exchange_inputs(key, evaluate, slopes, mask, most, len(indices)))
    _exchange_inputs.clear_cache()  # see `loop.forget`
    return found


@jax.jit
def swap_samples(
    learners: tuple[Learner, ...], data: Outer, indices: jax.Array, most: int, patience: int = 1
) -> tuple[jax.Array, jax.Array]:
    """`exchange_samples` as a pure function: `[K]` indices, not sorted, and their loss."""
    crosses = [products(one.outer, one.rows, one.width) for one in learners]
    near = [products(one.rows[indices], one.rows, one.width) for one in learners]

    def propose(carry, failures):
        chosen, near = carry
        swapped, place, loss, after = best_swap(learners, crosses, near, data, chosen, failures)
        comes = swapped[place]
        near = [
            rows.at[place].set(products(one.rows[comes][None], one.rows, one.width)[0])
            for one, rows in zip(learners, near, strict=True)
        ]
        return (swapped, near), loss, after

    (chosen, near), _ = _while_it_helps(propose, (indices, near), most, patience)
    return chosen, best_swap(learners, crosses, near, data, chosen)[2]


@partial(jax.jit, static_argnames=("most", "size"))
def _exchange_inputs(key, evaluate, slopes, mask, most: int, size: int) -> jax.Array:
    leaving, coming = min(TRIED, size), min(TRIED, len(mask) - size)

    def best_of_tried(mask, failures):
        now = slopes(key, mask[None])
        slope = now.path_gradients[0]
        _, leave = jax.lax.top_k(jnp.where(mask > 0, slope, -jnp.inf), leaving)
        _, come = jax.lax.top_k(jnp.where(mask > 0, -jnp.inf, -slope), coming)
        leave, come = jnp.repeat(leave, coming), jnp.tile(come, leaving)
        rows = jnp.arange(leaving * coming)
        swapped = jnp.tile(mask, (len(rows), 1)).at[rows, leave].set(0.0).at[rows, come].set(1.0)
        tried = evaluate(key, swapped)
        losses = jnp.where(tried.ok, tried.losses, jnp.inf)
        best = jnp.argmin(losses)
        return swapped[best], now.losses[0], losses[best]

    return _while_it_helps(best_of_tried, mask, most)[0]


def _while_it_helps(propose: Propose, start: Any, most: Any, patience: Any = 1) -> tuple[Any, Any]:
    """Where `patience` proposals in a row have not helped, and after how many proposals."""

    def unfinished(carry):
        _, step, failures = carry
        return (failures < patience) & (step < most)

    def body(carry):
        now, step, failures = carry
        swapped, loss, after = propose(now, failures)
        improves = after < loss * (1 - 1e-5)  # a change in the last digits could go back and forth
        kept = jax.tree.map(lambda new, old: jnp.where(improves, new, old), swapped, now)
        return kept, step + 1, jnp.where(improves, 0, failures + 1)

    return jax.lax.while_loop(unfinished, body, (start, 0, 0))[:2]


def best_swap(
    learners: Sequence[Learner],
    crosses: Sequence[jax.Array],
    near: Sequence[jax.Array],
    data: Outer,
    chosen: jax.Array,
    rank: jax.Array | int = 0,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The removal that costs least, then the addition that helps most.

    Args:
      learners: whose losses are added up.
      crosses: of each learner, products `[m, n]` of the outer data with the candidates.
      near: of each learner, products `[K, n]` of the chosen with all candidates.
      data: targets and weights.
      chosen: `[K]`.
      rank: 0 removes the one that costs least, 1 the next, ...

    Returns:
      `[K]` with one of them exchanged, its place, the loss before, and the loss after.
    """
    weights, own = data.weights, data.targets[chosen]
    all_of = [*zip(learners, crosses, near, strict=True)]

    def remove(one, cross, rows):
        eye = jnp.eye(len(chosen), dtype=rows.dtype)
        inverse = jnp.linalg.inv(rows[:, chosen] + one.ridge * eye)
        along = cross[:, chosen] @ inverse  # A [m, K]
        missing = along @ own - data.outer_targets
        step = -(inverse @ own) / jnp.diagonal(inverse)[:, None]
        loss = one.share * (weights @ jnp.sum(missing**2, axis=1))
        removals = one.share * loss_changes(along, step, missing, weights)
        return loss, removals, (inverse, along, missing, step)

    removed = [_if_it_counts(remove, *one) for one in all_of]
    loss, removals = (sum(one[i] for one in removed) for i in (0, 1))
    leaves = jnp.argsort(removals)[jnp.minimum(rank, len(chosen) - 1)]

    def add(one, cross, rows, solved):
        inverse, along, missing, step = solved
        missing = missing + along[:, leaves, None] * step[leaves]
        back = inverse @ rows  # [K, n]
        gone, scale = back[leaves], 1 / inverse[leaves, leaves]
        # What the others leave unexplained: without the one that leaves, more.
        left = cross - along @ rows + jnp.outer(along[:, leaves], gone * scale)
        lengths = 1.0 if one.width is not None else jnp.sum(one.rows**2, axis=1)
        lengths = lengths - jnp.sum(back * rows, axis=0) + gone**2 * scale
        errors = back.T @ own + jnp.outer(gone, step[leaves]) - data.targets
        return one.share * loss_changes(
            left, -errors / (lengths + one.ridge)[:, None], missing, weights
        )

    added = [_if_it_counts(add, *one, found[2]) for one, found in zip(all_of, removed, strict=True)]
    additions = sum(added)
    other = data.groups != data.groups[chosen[leaves]]
    taken = (~data.allowed | other).at[chosen].set(True).at[chosen[leaves]].set(False)
    comes = jnp.argmin(jnp.where(taken, jnp.inf, additions))
    after = loss + removals[leaves] + additions[comes]
    return chosen.at[leaves].set(comes.astype(chosen.dtype)), leaves, loss, after


def _if_it_counts(function: Callable, one: Learner, *more: Any) -> Any:
    """`function(one, *more)`; zeros, without the work, of a learner that has no share."""
    like = jax.eval_shape(function, one, *more)
    zeros = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)  # noqa: E731
    return jax.lax.cond(jnp.asarray(one.share) > 0, function, zeros, one, *more)


class Unexplained(NamedTuple):
    """What a coreset leaves open: C `[n + v, n]`, see above, and `missing [n + v, c]`, f - t."""

    left: jax.Array
    missing: jax.Array


def nothing_chosen(data: Any) -> Unexplained:
    """What the empty coreset leaves open, of the data of an objective with a Gram matrix."""
    return Unexplained(data.rows.T, -data.targets.T)


def best_addition(
    data: Any, ridge: float, state: Unexplained, allowed: jax.Array
) -> tuple[jax.Array, Unexplained]:
    """The one of the `allowed [n]` candidates that helps most, and what is left open with it."""
    n = len(allowed)
    pivots = jnp.diagonal(state.left[:n]) + ridge
    step = -state.missing[:n] / pivots[:, None]
    changes = loss_changes(state.left, step, state.missing, data.weights)
    best = jnp.argmin(jnp.where(allowed, changes, jnp.inf))
    column = state.left[:, best]
    missing = state.missing + column[:, None] * step[best]
    return best, Unexplained(state.left - jnp.outer(column, column[:n]) / pivots[best], missing)


def loss_changes(along: jax.Array, steps: jax.Array, missing: jax.Array, weights: jax.Array):
    """Of the loss `[m]`, if the outputs change by `along[:, i] steps[i]`."""
    linear = jnp.sum((along.T @ (weights[:, None] * missing)) * steps, axis=1)
    square = (weights @ along**2) * jnp.sum(steps**2, axis=1)
    return 2 * linear + square
