"""Ridge regression in closed form: what the kernel objectives of samples and of inputs share.

With C = K + ridge, K the products of embeddings or a kernel matrix, the outputs for sample i of a
regression on all others are t_i - [C^-1 t]_i / [C^-1]_ii: leave-one-out needs no held-out data.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, solve_triangular

from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes

LOSS_FNS = ("auto", "squared_error")
RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 3))
"""The grid that a ridge is chosen from."""

# Ridge regression on one-hot targets is linear in them: taken as logits, its outputs are too small.
LOGIT_SCALE = 10.0


def encode(y: jax.Array, num_classes: int = 0) -> jax.Array:
    """Targets `[n, c]` of a regression: one-hot less its mean for classes, else as they are.

    Within `jit` classes cannot be counted: give `num_classes`.
    """
    if not is_classes(y):
        return y.reshape(y.shape[0], -1).astype(jnp.float32)
    classes = num_classes or int(jnp.max(y)) + 1
    return jax.nn.one_hot(y, classes, dtype=jnp.float32) - 1 / classes


def outer_loss_of(outer_loss: str | losses.LossFn, y: jax.Array, path: bool) -> losses.LossFn:
    """The outer loss as a function; raises where it does not fit the targets or path gradients."""
    loss_fn = losses.get(outer_loss)
    if path:
        losses.check_gradient(loss_fn)
    if not is_classes(y) and isinstance(outer_loss, str) and outer_loss != "squared_error":
        raise UserError(f"outer_loss is {outer_loss!r}, which is for classes: use 'squared_error'")
    return loss_fn


def products(a: jax.Array, b: jax.Array, width: jax.Array | float | None = None) -> jax.Array:
    """The kernel matrix `[k, l]` of rows `[k, d]` and `[l, d]`.

    Args:
      a: rows.
      b: rows.
      width: of the Gaussian kernel exp(-|a - b|^2 / (2 width)); None for a.b.
    """
    dots = a @ b.T
    if width is None:
        return dots
    squares = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)
    return jnp.exp(jnp.minimum(2 * dots - squares, 0) / (2 * width))


def factor(matrix: jax.Array, ridge: float) -> tuple[jax.Array, bool]:
    """Cholesky's factor of matrix + ridge; the ridge is no finer than float32 can tell."""
    floor = 8 * jnp.finfo(matrix.dtype).eps * jnp.trace(matrix)
    return cho_factor(
        matrix + jnp.maximum(ridge, floor) * jnp.eye(len(matrix), dtype=matrix.dtype), lower=True
    )


def inverse_root(factor: tuple[jax.Array, bool]) -> jax.Array:
    """H with H'H the inverse, from Cholesky's factor."""
    return solve_triangular(factor[0], jnp.eye(len(factor[0]), dtype=factor[0].dtype), lower=True)


def errors_by_ridge(
    gram: jax.Array,
    targets: jax.Array,
    ridges: jax.Array,
    floor: jax.Array | float = 0.0,
    held_out: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Mean squared errors `[r]`, one per ridge, from one eigendecomposition.

    Args:
      gram: `[k, k]`.
      targets: `[k, c]`.
      ridges: `[r]`.
      floor: the smallest ridge, relative to the sum of the eigenvalues.
      held_out: `dual [k, c] -> residuals` on held-out data; leave-one-out if None.
    """
    values, vectors = jnp.linalg.eigh(gram)
    least = floor * jnp.sum(values)

    def error(ridge):
        inverse = 1 / (jnp.maximum(values, 0) + jnp.maximum(ridge, least))
        dual = vectors @ (inverse[:, None] * (vectors.T @ targets))
        if held_out is None:
            return jnp.mean((dual / ((vectors**2) @ inverse)[:, None]) ** 2)
        return jnp.mean(held_out(dual) ** 2)

    return jax.lax.map(error, ridges)


def choose_ridge(
    key: jax.Array,
    embeddings: jax.Array,
    y: jax.Array,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    ridges: Sequence[float] = RIDGES,
    draws: int = 0,
) -> float:
    """The ridge with which random coresets of this size have the least squared error.

    Args:
      key: PRNG key, consumed.
      embeddings: `[n, d]`, from `embeddings.normalise`.
      y: `[n]` or `[n, c]`.
      size: K.
      validation: `(embeddings [v, d], y)` to take the error on; leave-one-out if None.
      ridges: to choose from.
      draws: random coresets; 0 chooses, fewer of large ones.
    """
    size = max(min(size, 1000, len(y)), min(2, len(y)))
    draws = draws or (16 if size <= 300 else 4)
    targets, grid = encode(jnp.asarray(y)), jnp.asarray(ridges, jnp.float32)
    outer = None
    if validation is not None:
        both = encode(jnp.concatenate([jnp.asarray(y), jnp.asarray(validation[1])]))
        targets, outer = both[: len(y)], (validation[0], both[len(y) :])

    # Embeddings are an argument: what a compiled function closes over becomes a constant of it, a
    # copy that may be of gigabytes.
    @jax.jit
    def errors(key, embeddings, outer):
        rows = jax.random.choice(key, len(y), (size,), replace=False)
        chosen, t = embeddings[rows], targets[rows]
        held_out = None
        if outer is not None:
            held_out = lambda dual: outer[0] @ (chosen.T @ dual) - outer[1]  # noqa: E731
        floor = 4 * jnp.finfo(jnp.float32).eps
        return errors_by_ridge(chosen @ chosen.T, t, grid, floor, held_out)

    embeddings = jnp.asarray(embeddings)
    found = sum(errors(k, embeddings, outer) for k in jax.random.split(key, draws)) / draws
    return float(grid[jnp.argmin(found)])


def like_validation(y: jax.Array, y_validation: jax.Array, num_classes: int = 0) -> jax.Array:
    """Weights `[n]` with which each class has the share of the candidates that it has there.

    The validation data define what is wanted: where one class has most of the candidates, their
    plain mean would be the loss of that class. One more example of each
    class keeps a few of them from dominating.
    """
    if not jnp.issubdtype(y.dtype, jnp.integer):
        return jnp.full((len(y),), 1 / len(y), jnp.float32)
    length = num_classes or int(jnp.maximum(jnp.max(y), jnp.max(y_validation))) + 1
    wanted = jnp.bincount(y_validation, length=length) + 1
    weights = (wanted / jnp.maximum(jnp.bincount(y, length=length), 1))[y]
    return (weights / jnp.sum(weights)).astype(jnp.float32)
