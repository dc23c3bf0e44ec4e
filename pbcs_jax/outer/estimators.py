"""Estimates of the gradient of the expected outer loss, grad_s E_{m ~ p(m|s)} L(m), from M masks.

An `Estimator` (see `base`) is made of pure functions, as in optax: `sample` draws the masks that
the objective is evaluated on, `gradient` turns the evaluation into a gradient with respect to s.
Each factory below has the settings of its own estimator and no others.

    exact_k  pge with masks of exactly K candidates each, and their own score. Unbiased for the loss
             that such masks are expected to have.
    auto     what an objective does best with, see `Network.best_estimator`; in a loop of your own
             exact_k.
    pge      1/M sum_k (L_k - b_k) grad_s ln p(m_k|s). Unbiased; L may be any function of the mask.
    gumbel   1/M sum_k dL/dm_k * dm_k/ds for relaxed masks m = sigmoid((logit s + noise) / T).
    path     the mean of dL/dm over hard masks. Biased, but it covers all candidates at once.
    hybrid   the policy gradient, plus the mean of dL/dm over hard masks scaled to its length.
    differences  the mean of L(m with i) - L(m without i), for every i. Unbiased, and every mask
             tells of all candidates; for objectives with a closed form of these differences.
"""

import inspect
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from pbcs_jax.errors import check_known, check_number
from pbcs_jax.outer import masks as masks_lib
from pbcs_jax.outer.base import Estimator

VARIANCE_BASELINES = ("none", "leave_one_out")
MOST_OF_SIZE = 4096
"""Candidates up to which 'exact_k' draws masks of exactly K: its time grows with their square."""


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
    check_known("baseline", baseline, VARIANCE_BASELINES)
    losses = losses.astype(probabilities.dtype)  # an objective may compute in float64
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


def pge(baseline: str = "leave_one_out") -> Estimator:
    """The policy gradient, with the variance baseline 'leave_one_out' or 'none'."""
    check_known("baseline", baseline, VARIANCE_BASELINES)

    def gradient(evaluation, masks, probabilities, progress):
        return policy_gradient(evaluation.losses, masks, probabilities, baseline, evaluation.ok)

    return _stateless(masks_lib.sample_masks, gradient, False, _min_masks(baseline))


def exact_k() -> Estimator:
    """The policy gradient from masks of exactly K ones, with the leave-one-out baseline.

    How many samples a mask has explains much of its loss and says nothing of which to choose. Given
    the size, the score is (m - E m) / (s (1 - s)), and E m needs not be known: the advantages add
    up to 0. With more than `MOST_OF_SIZE` candidates it is `pge`.
    """

    def sample(key, probabilities, num_masks):
        few = len(probabilities) <= MOST_OF_SIZE
        draw = masks_lib.sample_masks_of_size if few else masks_lib.sample_masks
        return draw(key, probabilities, num_masks)

    return pge()._replace(sample=sample)


def gumbel(temperature: float = 0.5) -> Estimator:
    """The pathwise gradient through relaxed masks of this temperature."""
    check_number("temperature", temperature, least=0, above=True)

    def sample(key, probabilities, num_masks):
        return sample_relaxed_masks(key, probabilities, num_masks, temperature)

    def gradient(evaluation, masks, probabilities, progress):
        paths = evaluation.path_gradients
        return gumbel_gradient(paths, masks, probabilities, temperature, evaluation.ok)

    return _stateless(sample, gradient, True, 1)


def path() -> Estimator:
    """The mean of dL/dm over hard masks."""

    def gradient(evaluation, masks, probabilities, progress):
        return _mean_over_ok(evaluation.path_gradients, evaluation.ok)

    return _stateless(masks_lib.sample_masks, gradient, True, 1)


def hybrid(baseline: str = "leave_one_out", path_until: float = 1.0) -> Estimator:
    """The policy gradient plus the pathwise gradient, scaled to the same length.

    Args:
      baseline: of the policy gradient, see `pge`.
      path_until: the biased pathwise part falls linearly to 0 at this fraction of the outer steps,
        and the unbiased policy gradient finishes alone; 1 keeps the pathwise part to the end.
    """
    check_known("baseline", baseline, VARIANCE_BASELINES)
    check_number("path_until", path_until, least=0, most=1, above=True)

    def gradient(evaluation, masks, probabilities, progress):
        policy = policy_gradient(evaluation.losses, masks, probabilities, baseline, evaluation.ok)
        path = _mean_over_ok(evaluation.path_gradients, evaluation.ok)
        # Decided candidates have no score; the path alone must be able to bring one back.
        scale = jnp.linalg.norm(policy) / jnp.maximum(jnp.linalg.norm(path), 1e-30)
        weight = 1.0 if path_until == 1 else jnp.maximum(1 - progress / path_until, 0)
        return policy + weight * scale * path

    return _stateless(masks_lib.sample_masks, gradient, True, _min_masks(baseline))


def differences() -> Estimator:
    """The mean over masks of what each candidate changes, all others as they are.

    grad_s_i E L(m) is the expectation of exactly that difference. Where every candidate helps, what
    matters is which helps more than others: the mean over the undecided ones is taken off, which
    the projection onto sum s = K would do, but not an optimiser such as Adam before it.
    """

    def gradient(evaluation, masks, probabilities, progress):
        found = _mean_over_ok(evaluation.differences, evaluation.ok).astype(probabilities.dtype)
        weights = probabilities * (1 - probabilities)
        centre = jnp.sum(weights * found) / jnp.maximum(jnp.sum(weights), 1e-30)
        return found - centre

    estimator = _stateless(masks_lib.sample_masks, gradient, False, 1)
    return estimator._replace(needs_differences=True)


_FACTORIES: dict[str, Callable[..., Estimator]] = {
    "auto": exact_k,
    "exact_k": exact_k,
    "pge": pge,
    "gumbel": gumbel,
    "path": path,
    "hybrid": hybrid,
    "differences": differences,
}


def create(name: str, **settings: Any) -> Estimator:
    """An estimator by name; of `settings` its factory gets those that it takes.

    >>> create("gumbel", temperature=0.3, baseline="none").needs_path
    True
    """
    check_known("estimator", name, _FACTORIES, ", or an Estimator")
    factory = _FACTORIES[name]
    taken = inspect.signature(factory).parameters
    return factory(**{key: value for key, value in settings.items() if key in taken})


def smoothed(estimator: Estimator, smooth: Callable[[jax.Array], jax.Array]) -> Estimator:
    """The same estimator, its gradient passed through `smooth`, a function `[n] -> [n]`."""

    def gradient(*arguments):
        found, state = estimator.gradient(*arguments)
        return smooth(found), state

    return estimator._replace(gradient=gradient)


def _stateless(sample, gradient, needs_path: bool, min_masks: int) -> Estimator:
    """An estimator without memory, from `gradient(evaluation, masks, probabilities, progress)`."""

    def with_state(evaluation, masks, probabilities, progress, state):
        return gradient(evaluation, masks, probabilities, progress), state

    return Estimator(lambda n: (), sample, with_state, needs_path, min_masks)


def _min_masks(baseline: str) -> int:
    return 2 if baseline == "leave_one_out" else 1


def _mean_over_ok(values: jax.Array, ok: jax.Array | None) -> jax.Array:
    if ok is None:
        return jnp.mean(values, axis=0)
    return jnp.sum(jnp.where(ok[:, None], values, 0), axis=0) / jnp.maximum(jnp.sum(ok), 1)
