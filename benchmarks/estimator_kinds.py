"""Estimators and optimisers that `benchmarks.estimators` compares and the library does not have.

    antithetic  the policy gradient from pairs of masks, one of u < s and one of u > 1 - s
    sized       a control variate of the mask's size; unbiased up to a constant for all candidates
    linear      a linear control variate: the mean of past path gradients, scaled by regression
    regression  a linear control variate: a regression of the loss on past masks
    mixed       half of the masks relaxed, half of exactly K ones, as the paper combines both

The two linear ones are unbiased: their coefficients a come from past steps, and of L - a.(m - s)
and of a.(m - s) the first is estimated by the policy gradient while the gradient of the second is
a.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from pbcs_jax.outer import estimators
from pbcs_jax.outer import masks as masks_lib
from pbcs_jax.outer.base import Estimator
from pbcs_jax.outer.estimators import policy_gradient


def antithetic() -> Estimator:
    """Pairs of masks from u and 1 - u, each pair with the mean of the other pairs as baseline."""

    def sample(key, s, num_masks):
        u = jax.random.uniform(key, (num_masks // 2, len(s)))
        return jnp.concatenate([u < s, u > 1 - s]).astype(jnp.float32)

    def gradient(evaluation, masks, s, progress, state):
        losses = evaluation.losses.reshape(2, -1).mean(0)
        others = (losses.sum() - losses) / (len(losses) - 1)
        advantages = evaluation.losses - jnp.tile(others, 2)
        return jnp.mean(advantages[:, None] * masks_lib.mask_score(masks, s), 0), state

    return Estimator(lambda n: (), sample, gradient, False, 4)


def _logits(s: jax.Array) -> jax.Array:
    inside = jnp.clip(s, 1e-6, 1 - 1e-6)
    return jnp.log(inside) - jnp.log1p(-inside)


def controlled(evaluation: Any, masks: jax.Array, s: jax.Array, slope: jax.Array) -> jax.Array:
    """The policy gradient with the control variate slope.(m - s), whose gradient is known."""
    residuals = evaluation.losses - (masks - s) @ slope
    found = policy_gradient(residuals, masks, s, "leave_one_out", evaluation.ok)
    return found + jnp.where(masks_lib.is_random(s), slope, 0)


def centred(gradient: jax.Array, s: jax.Array) -> jax.Array:
    """Without its mean over the undecided, which the projection onto sum s = K takes off anyway."""
    weights = s * (1 - s)
    found = gradient - jnp.sum(weights * gradient) / jnp.maximum(jnp.sum(weights), 1e-30)
    return jnp.where(masks_lib.is_random(s), found, 0)


def sized(decay: float = 0.95) -> Estimator:
    """What the number of samples explains of the loss, by a regression on past steps, is left out.

    Its gradient is the same for all candidates, and the projection onto sum s = K removes it. An
    optimiser such as Adam would first scale it differently for each.
    """

    def gradient(evaluation, masks, s, progress, state):
        product, square = state
        slope = product / jnp.maximum(square, 1e-30)
        sizes = jnp.sum(masks, 1)
        residuals = evaluation.losses - slope * (sizes - jnp.sum(s))
        found = policy_gradient(residuals, masks, s, "leave_one_out", evaluation.ok)
        apart = sizes - jnp.mean(sizes)
        state = decay * product + apart @ evaluation.losses, decay * square + apart @ apart
        return centred(found, s), state

    init = lambda n: (jnp.zeros(()), jnp.zeros(()))  # noqa: E731
    return Estimator(init, masks_lib.sample_masks, gradient, False, 2)


def linear(decay: float = 0.9) -> Estimator:
    """A control variate from path gradients of past steps, scaled as past losses ask for."""

    def init(n):
        return jnp.zeros(n), jnp.zeros(()), jnp.zeros(())

    def gradient(evaluation, masks, s, progress, state):
        past, product, square = state
        found = controlled(evaluation, masks, s, past * product / jnp.maximum(square, 1e-30))
        guess = (masks - s) @ past
        guess, losses = (v - jnp.mean(v) for v in (guess, evaluation.losses))
        product = decay * product + guess @ losses
        square = decay * square + guess @ guess
        paths = jnp.mean(evaluation.path_gradients, 0)
        return found, (decay * past + (1 - decay) * paths, product, square)

    return Estimator(init, masks_lib.sample_masks, gradient, True, 2)


def regression(decay: float = 0.99) -> Estimator:
    """A control variate from a ridge regression of the loss on the masks of past steps."""

    def init(n):
        return jnp.zeros((n, n)), jnp.zeros(n)

    def gradient(evaluation, masks, s, progress, state):
        products, sums = state
        # As if the linear part were half of the loss's variance.
        ridge = jnp.maximum(jnp.sum(s * (1 - s)), 1e-3)
        slope = jnp.linalg.solve(products + ridge * jnp.eye(len(s)), sums)
        found = controlled(evaluation, masks, s, slope)
        apart, losses = masks - s, evaluation.losses - jnp.mean(evaluation.losses)
        return found, (decay * products + apart.T @ apart, decay * sums + apart.T @ losses)

    return Estimator(init, masks_lib.sample_masks, gradient, False, 2)


def with_path(estimator: Estimator, until: float) -> Estimator:
    """The estimator plus path gradients of its length, which fade out at `until`."""

    def gradient(evaluation, masks, s, progress, state):
        found, state = estimator.gradient(evaluation, masks, s, progress, state)
        path = jnp.mean(evaluation.path_gradients, 0)
        scale = jnp.linalg.norm(found) / jnp.maximum(jnp.linalg.norm(path), 1e-30)
        return found + jnp.maximum(1 - progress / until, 0) * scale * path, state

    return estimator._replace(gradient=gradient, needs_path=True)


def mixed(until: float) -> Estimator:
    """Half of the masks relaxed, half of exactly K ones: the paper's combination.

    The path gradient through the first is scaled to the length of the second's policy gradient, and
    fades linearly to 0 at `until` of the steps; 1 keeps it.
    """
    relaxed, hard = estimators.gumbel(), estimators.exact_k()

    def sample(key, s, num_masks):
        one, other = jax.random.split(key)
        half = num_masks // 2
        return jnp.concatenate([relaxed.sample(one, s, half), hard.sample(other, s, half)])

    def gradient(evaluation, masks, s, progress, state):
        half = len(masks) // 2
        parts = [
            jax.tree.map(lambda a, at=at: a[at], evaluation)
            for at in (slice(half), slice(half, None))
        ]
        path, _ = relaxed.gradient(parts[0], masks[:half], s, progress, ())
        policy, _ = hard.gradient(parts[1], masks[half:], s, progress, ())
        path, policy = centred(path, s), centred(policy, s)
        scale = jnp.linalg.norm(policy) / jnp.maximum(jnp.linalg.norm(path), 1e-30)
        weight = 1.0 if until == 1 else jnp.maximum(1 - progress / until, 0)
        return policy + weight * scale * path, state

    return Estimator(lambda n: (), sample, gradient, True, 4)


def natural(rate: float, steps: int) -> optax.GradientTransformation:
    """s moves along -s (1 - s) g, with the length that a step of Adam has."""

    def scaled(updates, state, params):
        direction = params * (1 - params) * updates
        length = jnp.sqrt(jnp.mean(direction**2)) + 1e-30
        return direction / length, state

    scale = optax.GradientTransformation(lambda params: (), scaled)
    return optax.chain(scale, optax.sgd(optax.cosine_decay_schedule(rate, steps)))


def mirror(rate: float, steps: int) -> optax.GradientTransformation:
    """The logits of s move along -g, in units of its root mean square."""
    schedule = optax.cosine_decay_schedule(rate, steps)

    def init(params):
        return jnp.zeros((), jnp.int32)

    def update(updates, count, params):
        step = schedule(count) * updates / (jnp.sqrt(jnp.mean(updates**2)) + 1e-30)
        logits = _logits(params)
        return jax.nn.sigmoid(logits - step) - jax.nn.sigmoid(logits), count + 1

    return optax.GradientTransformation(init, update)
