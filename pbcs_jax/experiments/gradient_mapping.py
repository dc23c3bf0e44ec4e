"""The convergence theorem on a problem so small that all of its masks can be tried.

    G(s) = (s - P_C(s - eta grad Phi(s))) / eta,    Phi(s) = E_{m ~ p(m|s)} L(m)

With the losses of all 2^n masks, Phi, its gradient, its smoothness and the error of the policy
gradient are exact. The outer loop that is looked at is the library's own, its objective a table.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.errors import UserError
from pbcs_jax.outer import loop, masks, projection
from pbcs_jax.outer.base import Evaluation, Objective
from pbcs_jax.outer.settings import Settings

MOST = 14
"""Candidates: of more, all masks would be too many."""
_AT_ONCE = 256


def every_mask(n: int) -> jax.Array:
    """All masks over n candidates, `[2^n, n]`, the last candidate changing fastest."""
    if n > MOST:
        raise UserError(f"the candidates are {n}: use at most {MOST}, all masks are tried")
    return jnp.array(list(itertools.product([0.0, 1.0], repeat=n)), jnp.float32)


def every_loss(key: jax.Array, evaluate: Objective, n: int) -> jax.Array:
    """L(m) of every mask, `[2^n]`, all by networks with the same random numbers."""
    judge = jax.jit(lambda some: evaluate(key, some).losses)
    every = every_mask(n)
    parts = [judge(every[at : at + _AT_ONCE]) for at in range(0, len(every), _AT_ONCE)]
    return jnp.concatenate(parts)


def expected_loss(losses: jax.Array, s: jax.Array) -> jax.Array:
    """Phi(s), from the losses of all masks `[2^n]` and probabilities `[n]`.

    >>> float(expected_loss(jnp.array([1.0, 2.0, 3.0, 5.0]), jnp.array([0.5, 0.5])))
    2.75
    """
    left = losses
    for probability in s:
        without, with_it = jnp.split(left, 2)
        left = (1 - probability) * without + probability * with_it
    return left[0]


def smoothness(losses: jax.Array) -> float:
    """An upper bound of the norm of Phi's Hessian anywhere, from the losses of all masks `[2^n]`.

    Phi is linear in each probability, so that a mixed derivative is largest at a mask. The norm of
    the matrix of these largest values is at least that of any Hessian.
    """
    n = int(np.log2(len(losses)))
    table = np.asarray(losses, float).reshape((2,) * n)
    largest = np.zeros((n, n))
    for i, j in itertools.combinations(range(n), 2):
        mixed = np.diff(np.diff(table, axis=i), axis=j)
        largest[i, j] = largest[j, i] = np.abs(mixed).max()
    return float(np.linalg.norm(largest, 2))


def squared_error(losses: jax.Array, s: jax.Array, num_masks: int) -> jax.Array:
    """E |g - grad Phi(s)|^2 of the policy gradient g from M masks, without a baseline.

    It is the variance over M, plus the square of the bias that a decided candidate has: its score
    is 0, and its derivative is not.
    """
    every = every_mask(len(s))
    shares = jnp.exp(masks.mask_log_prob(every, s))[:, None]
    estimates = losses[:, None] * masks.mask_score(every, s)
    mean = jnp.sum(shares * estimates, axis=0)
    variance = jnp.sum(shares * (estimates - mean) ** 2)
    bias = mean - jax.grad(expected_loss, 1)(losses, s)
    return variance / num_masks + jnp.sum(bias**2)


class Trace(NamedTuple):
    """What is known of every outer step, means over independent runs.

    Attributes:
      mapping: `[T]`, the square norm of the gradient mapping.
      spread: `[T]`, the standard error of that mean.
      error: `[T]`, `squared_error`.
      loss: `[T]`, Phi(s).
      decided: `[T]`, the share of candidates whose probability is 0 or 1.
    """

    mapping: np.ndarray
    spread: np.ndarray
    error: np.ndarray
    loss: np.ndarray
    decided: np.ndarray


def trace(
    key: jax.Array, losses: jax.Array, size: int, rate: float, masks_: int, steps: int, repeats: int
) -> tuple[Trace, np.ndarray]:
    """Algorithm 1 with M masks per step, several times; and the probabilities it ends with.

    Args:
      key: PRNG key, consumed.
      losses: `[2^n]`, of every mask.
      size: K.
      rate: the learning rate, eta.
      masks_: M.
      steps: T.
      repeats: independent runs.

    Returns:
      The trace, and the probabilities `[repeats, n]` of the last step.
    """
    n = int(np.log2(len(losses)))
    places = 2.0 ** jnp.arange(n - 1, -1, -1)
    settings = Settings(
        num_masks=masks_,
        outer_steps=steps,
        baseline="none",
        optimizer="sgd",
        learning_rate=rate,
        schedule="constant",
        clip_norm=0.0,
    )

    def evaluate(key: jax.Array, drawn: jax.Array) -> Evaluation:
        return Evaluation(losses[(drawn @ places).astype(jnp.int32)], jnp.ones(len(drawn), bool))

    def look(s: jax.Array) -> Trace:
        loss, gradient = jax.value_and_grad(expected_loss, 1)(losses, s)
        mapping = (s - projection.project(s - rate * gradient, size)) / rate
        decided = jnp.mean(~masks.is_random(s))
        square = jnp.sum(mapping**2)
        return Trace(square, square, squared_error(losses, s, masks_), loss, decided)

    def one(key: jax.Array) -> tuple[Trace, jax.Array]:
        def advance(state, _):
            return loop.step(state, evaluate, settings)[0], look(state.probabilities)

        last, seen = jax.lax.scan(advance, loop.init(key, n, size, settings), length=steps)
        return seen, last.probabilities

    seen, last = jax.jit(jax.vmap(one))(jax.random.split(key, repeats))
    means = Trace(*(np.asarray(values).mean(0) for values in seen))
    spread = np.asarray(seen.spread).std(0) / np.sqrt(repeats)
    return means._replace(spread=spread), np.asarray(last)


def bound(found: Trace, losses: Sequence[float], size: int, rate: float, smooth: float):
    """The theorem's two terms after each step, `[T]` each, which bound the running mean.

    The proof needs the error of the gradient only as a mean over the steps, which is taken as it
    is. Its first term lacks a factor of 1/eta in print, which is here.
    """
    n = int(np.log2(len(losses)))
    feasible = np.asarray(every_mask(n)).sum(1) <= size
    drop = found.loss[0] - np.asarray(losses)[feasible].min()
    steps = np.arange(1, len(found.loss) + 1)
    inner = 1 - smooth * rate / 2
    mean_error = np.cumsum(found.error) / steps
    return 2 * drop / (rate * inner * steps), 2 * (1 + inner) / inner * mean_error
