"""How much ridge: chosen on random coresets, by validation or by leave-one-out."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from pbcs_jax.objectives.sample_kernel import encode

RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 3))


def choose_ridge(
    key: jax.Array,
    features: jax.Array,
    y: jax.Array,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    ridges: Sequence[float] = RIDGES,
    draws: int = 0,
) -> float:
    """The ridge with which random coresets of this size do best.

    By the squared error on the validation data, or without them by leave-one-out, for which ridge
    regression has a closed form: a sample's error is [C^-1 t]_i / [C^-1]_ii.

    Args:
      key: PRNG key, consumed.
      features: `[n, d]`, from `representations.normalise`.
      y: `[n]` or `[n, c]`.
      size: K.
      validation: `(features [v, d], y)`.
      ridges: to choose from.
      draws: random coresets; 0 chooses, fewer of large ones.
    """
    size = max(min(size, 1000, len(y)), min(2, len(y)))
    draws = draws or (16 if size <= 300 else 4)
    targets, grid = encode(jnp.asarray(y)), jnp.asarray(ridges)
    outer = None
    if validation is not None:
        both = encode(jnp.concatenate([jnp.asarray(y), jnp.asarray(validation[1])]))
        targets, outer = both[: len(y)], (validation[0], both[len(y) :])

    # Features are an argument: what a compiled function closes over becomes a constant of it, a
    # copy that may be of gigabytes.
    @jax.jit
    def errors(key, features, outer):
        rows = jax.random.choice(key, len(y), (size,), replace=False)
        chosen, t = features[rows], targets[rows]
        values, vectors = jnp.linalg.eigh(chosen @ chosen.T)
        floor = 4 * jnp.finfo(jnp.float32).eps * jnp.sum(values)

        def error(ridge):
            inverse = 1 / (jnp.maximum(values, 0) + jnp.maximum(ridge, floor))
            dual = vectors @ (inverse[:, None] * (vectors.T @ t))
            if outer is None:
                return jnp.mean((dual / ((vectors**2) @ inverse)[:, None]) ** 2)
            return jnp.mean((outer[0] @ (chosen.T @ dual) - outer[1]) ** 2)

        return jax.lax.map(error, grid)

    features = jnp.asarray(features)
    found = sum(errors(k, features, outer) for k in jax.random.split(key, draws)) / draws
    return float(grid[jnp.argmin(found)])
