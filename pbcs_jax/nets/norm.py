"""Batch normalisation with the parameters and the state of `nn.BatchNorm`, and less to compute."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax


class BatchNorm(nn.Module):
    """`nn.BatchNorm(use_fast_variance=False)` of `[B, H, W, C]`, with a derivative of its own.

    Attributes:
      train: normalise by the batch's statistics, and let the running ones follow them.
      momentum: what the running statistics keep of themselves.
      epsilon: added to the variance.
    """

    train: bool
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Rows with `valid` `[B]` 0 are normalised, but take no part in the statistics."""
        channels = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, channels)
        var = self.variable("batch_stats", "var", jnp.ones, channels)
        scale = self.param("scale", nn.initializers.ones_init(), channels)
        bias = self.param("bias", nn.initializers.zeros_init(), channels)
        if not self.train:
            return (x - mean.value) * (lax.rsqrt(var.value + self.epsilon) * scale) + bias
        dtype, exact = x.dtype, jnp.promote_types(x.dtype, jnp.float32)
        # Sums over many pixels need more digits than bfloat16 has.
        x, scale, bias = (a.astype(exact) for a in (x, scale, bias))
        rows = jnp.ones(len(x), x.dtype) if valid is None else valid.astype(x.dtype)
        share = rows / (jnp.sum(rows) * x.shape[1] * x.shape[2])
        y, batch_mean, batch_var = normalise(x, scale, bias, share, self.epsilon)
        if not self.is_initializing():
            mean.value = self.momentum * mean.value + (1 - self.momentum) * batch_mean
            var.value = self.momentum * var.value + (1 - self.momentum) * batch_var
        return y.astype(dtype)


@jax.custom_jvp
def normalise(
    x: jax.Array, scale: jax.Array, bias: jax.Array, share: jax.Array, epsilon: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Takes mean and standard deviation out of `x`, and puts `bias` and `scale` in.

    The variance is the mean square distance from the mean, not E[x²] - E[x]², which cancels to
    nonsense for a channel whose mean is large. No derivative is taken in `share`.

    Args:
      x: `[B, H, W, C]`.
      scale: `[C]`.
      bias: `[C]`.
      share: of each row's pixels in the statistics, `[B]`.
      epsilon: added to the variance.

    Returns:
      The normalised `x`, and the mean and variance `[C]`.
    """
    mean, var = _statistics(x, share)
    return (x - mean) * (lax.rsqrt(var + epsilon) * scale) + bias, mean, var


@normalise.defjvp
def _normalise_jvp(primals, tangents):
    """Written so that its transpose needs only two sums over `x`."""
    x, scale, bias, share, epsilon = primals
    dx, dscale, dbias, *_ = tangents
    mean, var = _statistics(x, share)
    inverse = lax.rsqrt(var + epsilon)
    unit, slope = (x - mean) * inverse, inverse * scale
    dmean, dlength = _mean(dx, share), _mean(dx * unit, share)
    dy = slope * dx + unit * (dscale - slope * dlength) + (dbias - slope * dmean)
    y = (x - mean) * slope + bias
    return (y, mean, var), (dy, dmean, 2 * dlength / inverse)


def _statistics(x: jax.Array, share: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean = _mean(x, share)
    return mean, _mean((x - mean) ** 2, share)


def _mean(x: jax.Array, share: jax.Array) -> jax.Array:
    # Pixels before rows: XLA would write out `share` for every element.
    return share @ jnp.sum(x, axis=(1, 2))
