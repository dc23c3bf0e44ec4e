"""Euclidean projection onto C = {s : 0 <= s <= 1, sum s <= K}.

The projection of z is clip(z - max(0, v), 0, 1), where v solves sum_i clip(z_i - v, 0, 1) = K. That
sum falls with v and is piecewise linear, so a Newton step from a point on the right piece lands on
the root
exactly: Newton's method, held inside a shrinking bracket, ends after a few passes over z with no
  sort.
"""

import jax
import jax.numpy as jnp

_MAX_PASSES = 100  # a bound that is never met in practice: bisection alone needs about 60


def project(z: jax.Array, size: jax.Array | float) -> jax.Array:
    """The point of C nearest to z: exact, differentiable, for any float dtype.

    Args:
      z: `[n]`.
      size: K, a scalar >= 0, integer or not.

    Returns:
      `[n]`, of z's dtype.

    >>> project(jnp.array([0.9, 0.6, -1.0]), 1.0).round(3).tolist()
    [0.65..., 0.35..., 0.0]
    >>> project(jnp.array([0.25, 2.0]), 2).tolist()
    [0.25, 1.0]
    """
    # Half precision cannot hold a sum of thousands: work in float32, round once at the end.
    work = jnp.promote_types(z.dtype, jnp.float32)
    return _project(z.astype(work), jnp.asarray(size, work)).astype(z.dtype)


@jax.custom_jvp
def _project(z: jax.Array, size: jax.Array) -> jax.Array:
    inside = jnp.clip(z, 0, 1)
    feasible = jnp.sum(inside) <= size
    # The sum is at least K at v = low, and at most K at v = high.
    low, high = jnp.zeros((), z.dtype), jnp.maximum(jnp.max(z), 0)
    epsilon = jnp.finfo(z.dtype).eps

    def newton_step(shifted):
        total = jnp.sum(jnp.clip(shifted, 0, 1))
        slope = jnp.sum((shifted > 0) & (shifted < 1))
        return total, slope, (total - size) / jnp.maximum(slope, 1)

    def unfinished(carry):
        _, _, _, done, passes = carry
        return ~done & (passes < _MAX_PASSES)

    def narrow(carry):
        low, high, v, _, passes = carry
        total, slope, move = newton_step(z - v)
        low = jnp.where(total >= size, v, low)
        high = jnp.where(total <= size, v, high)
        newton = v + move
        # Strictly inside: with a flat piece at K, Newton can jump from one end to the other for
        # ever.
        good = (slope > 0) & (newton > low) & (newton < high)
        new = jnp.where(good, newton, low + (high - low) / 2)
        arrived = (slope > 0) & (jnp.abs(move) <= 2 * epsilon * v)
        done = arrived | (low >= high) | (new == v)
        return low, high, jnp.where(arrived, v, new), done, passes + 1

    start = (low, high, low, feasible, 0)
    _, _, v, _, _ = jax.lax.while_loop(unfinished, narrow, start)
    # v itself is only as fine as its own size allows. Around it the numbers are small: once more
    # there.
    shifted = z - v
    return jnp.where(feasible, inside, jnp.clip(shifted - newton_step(shifted)[2], 0, 1))


@_project.defjvp
def _project_jvp(primals, tangents):
    # Entries at 0 or 1 stay. The others keep the sum at K: they move by dz less the mean excess.
    z, size = primals
    dz, dsize = tangents
    s = _project(z, size)
    free = (s > 0) & (s < 1)
    active = jnp.sum(jnp.clip(z, 0, 1)) > size
    excess = (jnp.sum(jnp.where(free, dz, 0)) - dsize) / jnp.maximum(jnp.sum(free), 1)
    return s, jnp.where(free, dz - jnp.where(active, excess, 0), 0)
