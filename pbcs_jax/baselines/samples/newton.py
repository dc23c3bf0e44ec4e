"""Kernel logistic regression, one Newton step at a time: the inner problem of `greedy`."""

import jax
import jax.numpy as jnp
import optax

# Conjugate gradients of a step, which need not be exact: there are many.
ITERATIONS, TOLERANCE = 20, 0.1
_TINY = 1e-30


def newton_step(
    kernel: jax.Array, targets: jax.Array, scale: jax.Array, reg: float, alpha: jax.Array
) -> jax.Array:
    """One step towards argmin sum_i scale_i loss(K_i alpha, y_i) + reg tr(alpha' K alpha).

    The step solves (D K + 2 reg) step = -gradient by conjugate gradients in the inner product
    <a, b> = tr(a' K b), in which that is symmetric; the iterates are those of the same problem in
    features, whose condition is far better than that of the problem in alpha. The outputs are
    linear along the step, so a line search costs no product with K.

    Args:
      kernel: `[k, k]`.
      targets: `[k, C]` one-hot.
      scale: `[k]`, weights over their number.
      reg: > 0.
      alpha: `[k, C]`.

    Returns:
      `[k, C]`, whose loss is not larger.
    """
    outputs = kernel @ alpha
    p = jax.nn.softmax(outputs)
    astray = jnp.maximum(1 - 2 * jnp.sum(targets * p, axis=1, keepdims=True), 0)

    def curvature(v):
        exact = p * (v - jnp.sum(p * v, axis=1, keepdims=True))
        # Where a sample is on the wrong side its loss is nearly straight, and a Newton step far too
        # long. Half of the identity is an upper bound of the Hessian everywhere.
        bound = 0.5 * (v - jnp.mean(v, axis=1, keepdims=True))
        return scale[:, None] * (exact + astray * bound)

    def unfinished(carry):
        iteration, *_, square = carry
        return (iteration < ITERATIONS) & (square > TOLERANCE**2 * first)

    def iterate(carry):  # `k_` is the kernel's product with what follows
        iteration, step, k_step, residual, direction, k_direction, square = carry
        turned = curvature(k_direction) + 2 * reg * direction
        length = square / jnp.maximum(jnp.sum(k_direction * turned), _TINY)
        step, k_step = step + length * direction, k_step + length * k_direction
        residual = residual - length * turned
        k_residual = kernel @ residual
        new = jnp.sum(residual * k_residual)
        direction = residual + new / square * direction
        k_direction = k_residual + new / square * k_direction
        return iteration + 1, step, k_step, residual, direction, k_direction, new

    residual = -(scale[:, None] * (p - targets) + 2 * reg * alpha)
    k_residual = kernel @ residual
    first = jnp.sum(residual * k_residual)
    nothing = jnp.zeros_like(alpha)
    begin = (0, nothing, nothing, residual, residual, k_residual, first)
    _, step, k_step, *_ = jax.lax.while_loop(unfinished, iterate, begin)

    def loss(length):
        a, f = alpha + length * step, outputs + length * k_step
        return scale @ optax.losses.softmax_cross_entropy(f, targets) + reg * jnp.sum(a * f)

    lengths = jnp.append(2.0 ** -jnp.arange(8), 0).astype(alpha.dtype)
    return alpha + lengths[jnp.argmin(jax.vmap(loss)(lengths))] * step
