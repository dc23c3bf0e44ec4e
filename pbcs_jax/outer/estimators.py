"""Estimates of the gradient of the expected outer loss, grad_s E_{m ~ p(m|s)} L(m), from M masks.

An `Estimator` is a pair of pure functions, as in optax: `sample` draws the masks that the objective
is evaluated on, `gradient` turns what came back into a gradient with respect to s.

    pge      1/M sum_k (L_k - b_k) grad_s ln p(m_k|s). Unbiased; L may be any function of the mask.
    gumbel   1/M sum_k dL/dm_k * dm_k/ds for relaxed masks m = sigmoid((logit s + noise) / T).
    path     the mean of dL/dm over hard masks. Biased, but it tells of all candidates at once.
    hybrid   the policy gradient, plus the mean of dL/dm over hard masks scaled to its length.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pbcs_jax.errors import UserError
from pbcs_jax.outer import masks as masks_lib

BASELINES = ("none", "leave_one_out")


class Evaluation(NamedTuple):
    """What an objective says of M masks.

    Attributes:
      losses: `[M]`, the outer loss L(m) of each.
      ok: `[M]` bool; a mask whose model diverged or gave NaN is not ok and takes no part.
      path_gradients: `[M, n]`, dL/dm along the path of training, or None where there is none.
      masks: `[M, n]`, the masks that were really used, where they can differ from those given
        (candidates that overflowed a fixed capacity), else None.
      metrics: name to `[M]`, further figures to be logged, or None.
    """

    losses: jax.Array
    ok: jax.Array
    path_gradients: jax.Array | None = None
    masks: jax.Array | None = None
    metrics: dict[str, jax.Array] | None = None


class Estimator(NamedTuple):
    """A gradient estimator.

    Attributes:
      sample: `(key, probabilities [n], num_masks) -> masks [M, n]`.
      gradient: `(evaluation, masks [M, n], probabilities [n], progress) -> [n]`; `progress` runs
        from 0 to 1 over the outer steps.
      needs_path: whether `gradient` reads the evaluation's `path_gradients`.
      min_masks: the fewest masks it can work with.
    """

    sample: Callable[[jax.Array, jax.Array, int], jax.Array]
    gradient: Callable[[Evaluation, jax.Array, jax.Array, jax.Array], jax.Array]
    needs_path: bool
    min_masks: int


def policy_gradient(
    losses: jax.Array,
    masks: jax.Array,
    probabilities: jax.Array,
    baseline: str = "leave_one_out",
    ok: jax.Array | None = None,
) -> jax.Array:
    """The policy gradient estimate of grad_s E L(m).

    With the leave-one-out baseline, b_k is the mean loss of the other masks, and the estimate is
    sum_k (L_k - mean L) grad ln p(m_k|s) / (M - 1): still unbiased, and far less noisy.

    Args:
      losses: `[M]`.
      masks: `[M, n]`, drawn from p(m | s).
      probabilities: `[n]`, s.
      baseline: 'leave_one_out' (M >= 2) or 'none' (the paper's Algorithm 1).
      ok: `[M]` bool, masks to be left out are False; all are in by default.

    Returns:
      `[n]`.

    >>> s = jnp.array([0.5, 0.5])
    >>> masks = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    >>> policy_gradient(jnp.array([3.0, 1.0]), masks, s).tolist()
    [4.0, -4.0]
    """
    chex.assert_rank([losses, masks, probabilities], [1, 2, 1])
    if baseline not in BASELINES:
        raise UserError(f"baseline {baseline!r} is unknown: use one of {', '.join(BASELINES)}")
    use = jnp.ones_like(losses) if ok is None else ok.astype(losses.dtype)
    losses = jnp.where(use > 0, losses, 0)  # a NaN times 0 is still a NaN
    count = jnp.sum(use)
    # The score is (m - s) / (s (1 - s)).
    advantages, reference = losses, probabilities
    if baseline == "leave_one_out":
        advantages = use * (losses - jnp.sum(losses) / jnp.maximum(count, 1))
        count = count - 1
        # The advantages add up to 0, so the masks may be counted from any one of them. Then a
        # candidate that all masks agree on gets exactly 0, where rounding errors would be blown up
        # by Adam.
        reference = masks[jnp.argmax(use)]

    def add(total, one):
        advantage, mask = one
        return total + advantage * (mask - reference), None

    # Row by row in one pass: a matmul would first write all differences to memory.
    start = jnp.zeros_like(probabilities)
    total, _ = jax.lax.scan(add, start, (advantages, masks), unroll=8)
    inside = masks_lib.inside(probabilities)
    gradient = total / (inside * (1 - inside) * jnp.maximum(count, 1))
    return jnp.where(masks_lib.is_random(probabilities), gradient, 0)


def sample_relaxed_masks(
    key: jax.Array, probabilities: jax.Array, num_masks: int, temperature: float
) -> jax.Array:
    """Gumbel-softmax (binary concrete) masks: sigmoid((logit s + logistic noise) / temperature).

    A value is above 1/2 with probability exactly s. Decided candidates (s of 0 or 1) stay 0 or 1.

    Args:
      key: PRNG key, consumed.
      probabilities: `[n]`, s.
      num_masks: M.
      temperature: > 0; towards 0 the masks become hard.

    Returns:
      `[M, n]` float32 in [0, 1].
    """
    noise = jax.random.logistic(key, (num_masks, probabilities.shape[0]), probabilities.dtype)
    inside = masks_lib.inside(probabilities)
    logits = jnp.log(inside) - jnp.log1p(-inside)
    relaxed = jax.nn.sigmoid((logits + noise) / temperature)
    return jnp.where(masks_lib.is_random(probabilities), relaxed, probabilities)


def gumbel_gradient(
    path_gradients: jax.Array,
    masks: jax.Array,
    probabilities: jax.Array,
    temperature: float,
    ok: jax.Array | None = None,
) -> jax.Array:
    """Mean over masks of dL/dm * dm/ds, for masks from `sample_relaxed_masks`.

    The noise need not be kept: dm/ds = m(1 - m) / (temperature * s(1 - s)).

    Args:
      path_gradients: `[M, n]`, dL/dm.
      masks: `[M, n]`, relaxed.
      probabilities: `[n]`, s.
      temperature: the one that the masks were drawn with.
      ok: `[M]` bool, masks to be left out are False.

    Returns:
      `[n]`.
    """
    inside = masks_lib.inside(probabilities)
    slope = masks * (1 - masks) / (temperature * inside * (1 - inside))
    slope = jnp.where(masks_lib.is_random(probabilities), slope, 0)
    return _mean_over_ok(path_gradients * slope, ok)


def create(
    name: str, *, baseline: str = "leave_one_out", temperature: float = 0.5, path_until: float = 1.0
) -> Estimator:
    """An estimator by name.

    Args:
      name: 'pge' (the policy gradient), 'gumbel', 'path' or 'hybrid'.
      baseline: of the policy gradient, 'leave_one_out' or 'none'.
      temperature: of 'gumbel'.
      path_until: of 'hybrid': its biased pathwise part falls linearly to nothing at this fraction
        of the outer steps, and the unbiased policy gradient finishes alone. 1 keeps it full to the
        end.

    Returns:
      `Estimator`.
    """
    if name not in _ESTIMATORS:
        raise UserError(f"estimator {name!r} is unknown: use one of {', '.join(_ESTIMATORS)}")
    if baseline not in BASELINES:
        raise UserError(f"baseline {baseline!r} is unknown: use one of {', '.join(BASELINES)}")
    if not temperature > 0:
        raise UserError(f"temperature is {temperature}: it must be above 0")
    if not 0 < path_until <= 1:
        raise UserError(f"path_until is {path_until}: it must be above 0 and at most 1")
    return _ESTIMATORS[name](baseline, temperature, path_until)


def smoothed(estimator: Estimator, smooth: Callable[[jax.Array], jax.Array]) -> Estimator:
    """The same, with its gradient put through `smooth`, a function `[n] -> [n]`."""

    def gradient(evaluation, masks, probabilities, progress):
        return smooth(estimator.gradient(evaluation, masks, probabilities, progress))

    return estimator._replace(gradient=gradient)


def _policy_gradient_estimator(baseline, temperature, path_until) -> Estimator:
    def gradient(evaluation, masks, probabilities, progress):
        return policy_gradient(evaluation.losses, masks, probabilities, baseline, evaluation.ok)

    return Estimator(masks_lib.sample_masks, gradient, False, _min_masks(baseline))


def _gumbel_estimator(baseline, temperature, path_until) -> Estimator:
    def sample(key, probabilities, num_masks):
        return sample_relaxed_masks(key, probabilities, num_masks, temperature)

    def gradient(evaluation, masks, probabilities, progress):
        paths = evaluation.path_gradients
        return gumbel_gradient(paths, masks, probabilities, temperature, evaluation.ok)

    return Estimator(sample, gradient, True, 1)


def _path_estimator(baseline, temperature, path_until) -> Estimator:
    def gradient(evaluation, masks, probabilities, progress):
        return _mean_over_ok(evaluation.path_gradients, evaluation.ok)

    return Estimator(masks_lib.sample_masks, gradient, True, 1)


def _hybrid_estimator(baseline, temperature, path_until) -> Estimator:
    def gradient(evaluation, masks, probabilities, progress):
        policy = policy_gradient(evaluation.losses, masks, probabilities, baseline, evaluation.ok)
        path = _mean_over_ok(evaluation.path_gradients, evaluation.ok)
        # Decided candidates have no score; the path alone must be able to bring one back.
        scale = jnp.linalg.norm(policy) / jnp.maximum(jnp.linalg.norm(path), 1e-30)
        weight = 1.0 if path_until == 1 else jnp.maximum(1 - progress / path_until, 0)
        return policy + weight * scale * path

    return Estimator(masks_lib.sample_masks, gradient, True, _min_masks(baseline))


_ESTIMATORS = {
    "pge": _policy_gradient_estimator,
    "gumbel": _gumbel_estimator,
    "path": _path_estimator,
    "hybrid": _hybrid_estimator,
}


def _min_masks(baseline: str) -> int:
    return 2 if baseline == "leave_one_out" else 1


def _mean_over_ok(values: jax.Array, ok: jax.Array | None) -> jax.Array:
    if ok is None:
        return jnp.mean(values, axis=0)
    return jnp.sum(jnp.where(ok[:, None], values, 0), axis=0) / jnp.maximum(jnp.sum(ok), 1)
