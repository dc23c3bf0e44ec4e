"""Bernoulli masks over n candidates: sample, log-probability, score, pack into fixed capacity.

A mask is a vector of 0 and 1, m ~ prod_i s_i^m_i (1 - s_i)^(1 - m_i). M of them are one array
`[M, n]`, and everything here works on all of them at once.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy


def sample_masks(key: jax.Array, probabilities: jax.Array, num_masks: int) -> jax.Array:
    """Draws independent masks from p(m | s).

    Args:
      key: PRNG key, consumed.
      probabilities: `[n]`, s.
      num_masks: M.

    Returns:
      `[M, n]` float32 of 0 and 1.

    >>> masks = sample_masks(jax.random.key(0), jnp.array([0.0, 0.5, 1.0]), 4)
    >>> masks.shape, masks[:, 0].tolist(), masks[:, 2].tolist()
    ((4, 3), [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """
    chex.assert_rank(probabilities, 1)
    probabilities = probabilities.astype(jnp.float32)  # float16 ends below 2^32
    shape = (-(-num_masks // 2), probabilities.shape[0])
    row, column = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in (0, 1))
    words = _threefry(jax.random.bits(key, (2,), jnp.uint32), (column, row))
    # A word is below s 2^32 with probability s, to 2^-32. For s = 1 that number does not fit.
    limit, sure = (probabilities * 2.0**32).astype(jnp.uint32), probabilities >= 1
    chosen = [(word < limit) | sure for word in words]
    return jnp.concatenate(chosen)[:num_masks].astype(jnp.float32)


def sample_masks_of_size(key: jax.Array, probabilities: jax.Array, num_masks: int) -> jax.Array:
    """Draws independent masks from p(m | s) given their size: K ones each, K the sum of s.

    Candidate after candidate, with the distribution of how many the later ones choose (conditional
    Bernoulli sampling; Chen, Dempster and Liu 1994). Takes n² steps of arithmetic, and as much
    memory.

    Args:
      key: PRNG key, consumed.
      probabilities: `[n]`, s; their sum is rounded.
      num_masks: M.

    Returns:
      `[M, n]` float32 of 0 and 1.

    >>> masks = sample_masks_of_size(jax.random.key(0), jnp.array([0.0, 0.5, 0.5, 1.0]), 4)
    >>> masks.sum(1).tolist(), masks[:, 0].tolist(), masks[:, 3].tolist()
    ([2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """
    chex.assert_rank(probabilities, 1)
    s = probabilities.astype(jnp.float32)
    n = len(s)

    def count(later, s):
        return (1 - s) * later + s * jnp.roll(later, 1).at[0].set(0), later

    def choose(left, given):
        s, later, numbers = given
        with_it, without = s * jnp.where(left > 0, later[left - 1], 0), (1 - s) * later[left]
        chosen = numbers * (with_it + without) < with_it
        return left - chosen, chosen

    none = jnp.zeros(n + 1).at[0].set(1)
    _, later = jax.lax.scan(count, none, s, reverse=True)  # row i: of the candidates after i
    left = jnp.full((num_masks,), jnp.round(jnp.sum(s)), jnp.int32)
    numbers = jax.random.uniform(key, (n, num_masks), jnp.float32)
    _, masks = jax.lax.scan(choose, left, (s, later, numbers))
    return masks.T.astype(jnp.float32)


def mask_log_prob(masks: jax.Array, probabilities: jax.Array) -> jax.Array:
    """ln p(m | s) of each mask; -inf for a mask that cannot occur.

    Args:
      masks: `[M, n]` of 0 and 1.
      probabilities: `[n]`, s.

    Returns:
      `[M]`.

    >>> mask_log_prob(jnp.array([[1.0, 0.0]]), jnp.array([0.5, 0.0])).tolist()
    [-0.693...]
    """
    chex.assert_rank([masks, probabilities], [2, 1])
    return jnp.sum(xlogy(masks, probabilities) + xlog1py(1 - masks, -probabilities), axis=-1)


def mask_score(masks: jax.Array, probabilities: jax.Array) -> jax.Array:
    """The score, the gradient of ln p(m | s) with respect to s: m/s - (1 - m)/(1 - s).

    Where s is 0 or 1 the mask is no longer random and its score is 0, never NaN or inf.

    Args:
      masks: `[M, n]` of 0 and 1.
      probabilities: `[n]`, s.

    Returns:
      `[M, n]`.

    >>> mask_score(jnp.array([[1.0, 0.0, 1.0]]), jnp.array([0.25, 0.25, 1.0])).round(3).tolist()
    [[4.0, -1.33..., 0.0]]
    """
    chex.assert_rank([masks, probabilities], [2, 1])
    s = inside(probabilities)
    return jnp.where(is_random(probabilities), masks / s - (1 - masks) / (1 - s), 0)


def inside(probabilities: jax.Array) -> jax.Array:
    """`[n]`, inside (0, 1) and not nearer to 0 or 1 than a reciprocal can hold."""
    limits = jnp.finfo(probabilities.dtype)
    return jnp.clip(probabilities, limits.tiny, 1 - limits.epsneg)


def is_random(probabilities: jax.Array) -> jax.Array:
    """`[n]` bool: which candidates are still undecided, 0 < s < 1."""
    return (probabilities > 0) & (probabilities < 1)


class PackedMasks(NamedTuple):
    """M masks as lists of candidates, each padded to the same capacity.

    Attributes:
      indices: `[M, capacity]` int32, the candidates; padding repeats real rows and has weight 0.
      weights: `[M, capacity]` float32, the mask's values; 0 where there is padding.
      masks: `[M, n]`, the masks that the packed rows stand for: what overflowed is not in them.
      overflow: `[M]` int32, how many chosen candidates found no room.
    """

    indices: jax.Array
    weights: jax.Array
    masks: jax.Array
    overflow: jax.Array


def pack_masks(masks: jax.Array, capacity: int) -> PackedMasks:
    """Packs each mask's chosen candidates into `capacity` rows.

    Relaxed masks (values between 0 and 1) keep their `capacity` heaviest candidates.

    Args:
      masks: `[M, n]` of values in [0, 1].
      capacity: rows per mask, at most n.

    Returns:
      `PackedMasks`.

    >>> packed = pack_masks(jnp.array([[0.0, 1.0, 0.0, 1.0]]), capacity=3)
    >>> packed.indices.tolist(), packed.weights.tolist(), packed.overflow.tolist()
    ([[1, 3, 0]], [[1.0, 1.0, 0.0]], [0])
    """
    chex.assert_rank(masks, 2)
    weights, indices = jax.lax.top_k(masks, capacity)  # ties: the lower index first
    # Whoever takes fewer rows of these must not be merged with it: XLA would no longer see that the
    # first few are wanted, and sort all n. One barrier each: with one for both XLA's compiler
    # (JAX 0.10.2) aborts where the program is for several processes.
    weights, indices = map(jax.lax.optimization_barrier, (weights, indices))
    rows = jnp.arange(masks.shape[0])[:, None]
    kept = jnp.zeros_like(masks).at[rows, indices].set(weights)
    overflow = jnp.sum(masks >= 0.5, axis=-1) - jnp.sum(weights >= 0.5, axis=-1)
    return PackedMasks(indices, weights, kept, overflow)


def capacities(n: int, size: float) -> tuple[int, ...]:
    """Numbers of rows to pack masks of expected size `size` into: a few sizes, ascending.

    The number of chosen candidates has a variance of sum s(1 - s) <= K(1 - K/n). The last size, 4
    deviations above K, has room for nearly every mask at all times; the one before serves most
    steps, and the first is enough when the probabilities have settled. Multiples of 8, for the
    vector units.

    >>> capacities(n=1000, size=100), capacities(n=50, size=50)
    ((104, 120, 144), (50,))
    """
    deviation = math.sqrt(max(size * (1 - size / n), 0.0))
    rows = (8 * math.ceil((size + sigmas * deviation) / 8) for sigmas in (0.25, 2.0, 4.0))
    return tuple(sorted({min(n, count) for count in rows}))


def _threefry(key: jax.Array, counters: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds: two random words for every pair of counters.

    What `jax.random` computes, but written out. There the rounds are a loop on CPU, each of which
    goes through memory: ten times slower for millions of candidates.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    a, b = counters[0] + keys[0], counters[1] + keys[1]
    for block in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            a = a + b
            b = a ^ ((b << rotation) | (b >> (32 - rotation)))
        a, b = a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return a, b
