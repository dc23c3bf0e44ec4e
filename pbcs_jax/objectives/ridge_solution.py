"""One mask's ridge regression from embeddings: in the dual or the primal form, the smaller one.

With A = sum_i m_i phi_i phi_i' + ridge of the chosen rows, and W = A^-1 sum_i m_i phi_i t_i'.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from pbcs_jax.objectives import ridge as ridge_lib

# Random combinations by which squared lengths are estimated; the relative error is sqrt(2 / this).
SKETCH = 32


class Solved(NamedTuple):
    """A mask's regression.

    Attributes:
      model: `[d, c]`, W.
      chosen: `[capacity, d]`, times the roots of their weights.
      targets: `[capacity, c]`, the same.
      root: `[capacity]`, the roots.
      factor: Cholesky's, of the dual form where the capacity is not above d, else of the primal.
      left: `[capacity, c]`, C^-1 t of the dual form, the residuals of the primal one.
    """

    model: jax.Array
    chosen: jax.Array
    targets: jax.Array
    root: jax.Array
    factor: jax.Array
    left: jax.Array


def solve(rows, targets, weights, ridge) -> Solved:
    """Of chosen rows `[capacity, d]`, whichever form is smaller."""
    root = jnp.sqrt(weights)
    chosen, targets = rows * root[:, None], targets * root[:, None]
    if _is_dual(chosen):
        factor, _ = ridge_lib.factor(chosen @ chosen.T, ridge)
        dual = cho_solve((factor, True), targets)
        return Solved(chosen.T @ dual, chosen, targets, root, factor, dual)
    factor, _ = ridge_lib.factor(chosen.T @ chosen, ridge)
    model = cho_solve((factor, True), chosen.T @ targets)
    return Solved(model, chosen, targets, root, factor, targets - chosen @ model)


def _is_dual(chosen: jax.Array) -> bool:
    return chosen.shape[0] <= chosen.shape[1]


def inverse(solved: Solved, columns: jax.Array, ridge: float) -> jax.Array:
    """A^-1 times columns `[d, k]`."""
    chosen, factor = solved.chosen, (solved.factor, True)
    if _is_dual(chosen):
        return (columns - chosen.T @ cho_solve(factor, chosen @ columns)) / ridge
    return cho_solve(factor, columns)


def free(solved: Solved, ridge: float) -> jax.Array:
    """1 - h of the chosen ones, `[capacity]`."""
    if _is_dual(solved.chosen):
        return ridge * inverse_diagonal((solved.factor, True))
    columns = cho_solve((solved.factor, True), solved.chosen.T)
    return 1 - jnp.sum(solved.chosen * columns.T, axis=1)


def alone(solved: Solved, ridge: float) -> jax.Array:
    """`[c, capacity]`, outputs of the chosen ones, each without itself."""
    is_dual = _is_dual(solved.chosen)
    over = inverse_diagonal((solved.factor, True)) if is_dual else free(solved, ridge)
    return left_out(solved.targets, solved.left, over, solved.root)


def left_out(targets, numerator, denominator, root):
    """`[c, capacity]` outputs of samples left out; both have been multiplied with their weights."""
    return ((targets - numerator / denominator[:, None]) / jnp.maximum(root, 1e-6)[:, None]).T


def inverse_diagonal(factor) -> jax.Array:
    """The diagonal of the inverse, from Cholesky's factor."""
    return jnp.sum(ridge_lib.inverse_root(factor) ** 2, axis=0)


def with_sketches(root, key, solved: Solved, pulls, ridge) -> jax.Array:
    """`[d, c + 2 SKETCH]`: phi'G, columns whose products with A^-1 phi estimate q, and h."""
    one, other = jax.random.split(key)
    for_q = root @ _signs(one, len(root), root.dtype)
    # A = ridge + chosen' chosen, so A^-1 phi has the squared length ridge |.|^2 + |chosen .|^2.
    first, second = jax.random.split(other)
    capacity, d = solved.chosen.shape
    own = math.sqrt(ridge) * _signs(first, d, root.dtype)
    for_h = own + solved.chosen.T @ _signs(second, capacity, root.dtype)
    return jnp.concatenate([pulls, for_q, for_h], axis=1)


def _signs(key: jax.Array, rows: int, dtype) -> jax.Array:
    """`[rows, SKETCH]` random signs over sqrt(SKETCH)."""
    return jax.random.rademacher(key, (rows, SKETCH), dtype) / math.sqrt(SKETCH)


def lengths(along: jax.Array, missing: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Estimates `[m, r]` of q |r_i|^2 and of h; see the top of `sample_kernel`.

    Args:
      along: `[m, c + 2 SKETCH, r]`, products with what `with_sketches` and then `inverse` gave.
      missing: `[m, c, r]`, targets less outputs.
    """
    c = missing.shape[1]
    q = jnp.sum(along[:, c : c + SKETCH] ** 2, axis=1) * jnp.sum(missing**2, axis=1)
    return q, jnp.sum(along[:, c + SKETCH :] ** 2, axis=1)


def removed(solved: Solved, rows, targets, columns, ridge) -> jax.Array:
    """`[capacity]`, what the chosen ones have changed; see the top of `sample_kernel`."""
    along = (rows @ columns).T[None]
    missing = (targets - rows @ solved.model).T[None]
    paths = jnp.sum(along[:, : missing.shape[1]] * missing, axis=1)
    q, _ = lengths(along, missing)
    rest = jnp.maximum(free(solved, ridge), 1e-6)
    return (paths / rest - q / rest**2)[0]
