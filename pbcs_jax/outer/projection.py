"""Euclidean projection onto C = {s : 0 <= s <= 1, sum s <= K}.

The projection of z is clip(z - max(0, v), 0, 1), where v solves sum_i clip(z_i - v, 0, 1) = K. That
sum falls with v and is piecewise linear, so a Newton step from a point on the right piece lands on
the root exactly: Newton's method, held inside a shrinking bracket, ends after a few passes over z
with no sort.
"""

import jax
import jax.numpy as jnp

_MAX_PASSES = 100  # a bound that is never met in practice: bisection alone needs about 60
_MANY, _SAMPLE, _ROW = 1 << 18, 1 << 17, 1024


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
    n = z.shape[0]
    start = jnp.zeros((), z.dtype)
    if n > _MANY:
        # A hundredth of the entries nearly gives the root: fewer passes over all of them.
        sample = z[:: n // _SAMPLE]
        start, _ = _root(sample, size * (sample.shape[0] / n), start)
    v, rest = _root(z, size, start)
    # v itself is only as fine as its own size allows; around it the numbers are small.
    return jnp.clip((z - v) - rest, 0, 1)


def _root(z, size, start):
    """v and a small rest with sum clip(z - v - rest, 0, 1) = K; both are 0 if z needs no v.

    Newton's method from `start` >= 0; where it would leave the bracket, bisection.
    """
    epsilon = jnp.finfo(z.dtype).eps

    def at(v):
        return lambda z: (jnp.clip(z - v, 0, 1), ((z > v) & (z - v < 1)).astype(z.dtype))

    def decide(low, high, v, total, slope):
        # The sum is at least K at low, and at most K at high.
        low = jnp.where(total >= size, v, low)
        high = jnp.where(total <= size, v, high)
        move = jnp.where(slope > 0, (total - size) / jnp.maximum(slope, 1), 0)
        newton = v + move
        # Strictly inside: with a flat piece at K, Newton can jump between its ends for ever.
        good = (slope > 0) & (newton > low) & (newton < high)
        new = jnp.where(good, newton, low + (high - low) / 2)
        # As near as v, or the sum, can tell.
        near = (jnp.abs(move) <= 4 * epsilon * v) | (jnp.abs(total - size) <= 4 * epsilon * size)
        done = ((slope > 0) & near) | (low >= high) | (new == v)
        v, rest = jnp.where(done, v, new), jnp.where(done, jnp.clip(move, low - v, high - v), 0)
        return low, high, v, rest, done

    def unfinished(carry):
        *_, done, passes = carry
        return ~done & (passes < _MAX_PASSES)

    def narrow(carry):
        low, high, v, _, _, passes = carry
        total, slope = _reduce(z, at(v), (jnp.add, jnp.add), (0, 0))
        return *decide(low, high, v, total, slope), passes + 1

    zero = jnp.zeros((), z.dtype)
    whole, top, total, slope = _reduce(
        z,
        lambda z: (jnp.clip(z, 0, 1), z, *at(start)(z)),
        (jnp.add, jnp.maximum, jnp.add, jnp.add),
        (0, -jnp.inf, 0, 0),
    )
    feasible = whole <= size
    low, high, v, rest, done = decide(zero, jnp.maximum(top, start), start, total, slope)
    carry = jax.lax.while_loop(unfinished, narrow, (low, high, v, rest, done | feasible, 0))
    return jnp.where(feasible, zero, carry[2]), jnp.where(feasible, zero, carry[3])


def _reduce(z, function, operations, units):
    """Reductions of several functions of z in one pass; rows first: those vectorise on CPU."""
    units = tuple(jnp.asarray(unit, z.dtype) for unit in units)

    def all_of(left, right):
        return tuple(op(a, b) for op, a, b in zip(operations, left, right, strict=True))

    def over(z, axis):
        return jax.lax.reduce(function(z), units, all_of, (axis,))

    whole = z.shape[0] // _ROW * _ROW  # what is left over is reduced apart: padding would copy z
    rows = jax.lax.reduce(over(z[:whole].reshape(-1, _ROW), 1), units, all_of, (0,))
    return all_of(rows, over(z[whole:], 0))


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
