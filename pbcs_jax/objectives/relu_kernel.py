"""The neural tangent kernel of wide ReLU networks with dense layers, in closed form.

With Sigma_0 = X X' / d and, for each hidden layer, angles theta between what it gets (Cho and Saul,
2009; Jacot et al., 2018),

    Sigma_l = |.||.|' (sin theta + (pi - theta) cos theta) / pi        what it gives
    Theta_l = Sigma_l + Theta_{l-1} (pi - theta) / pi                  Theta_0 = Sigma_0

It does not change if all inputs are permuted alike, needs no network, and takes one product.
"""

from functools import partial

import jax
import jax.numpy as jnp

# Relative to the mean of the diagonal: what float32 leaves of the smallest eigenvalues.
_JITTER = 1e-5


def relu_kernel(x: jax.Array, hidden: int = 2) -> jax.Array:
    """Theta `[m, m]` of `x [m, ...]`, for a network with so many hidden layers.

    >>> jnp.abs(relu_kernel(jnp.array([[1.0, 1.0], [-1.0, -1.0]]), hidden=1)).round(2).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    x = x.reshape(len(x), -1).astype(jnp.float32)
    sigma = x @ x.T / x.shape[1]
    theta = sigma
    for _ in range(hidden):
        length = jnp.sqrt(jnp.maximum(jnp.diagonal(sigma), 1e-12))
        norms = length[:, None] * length
        cosine = jnp.clip(sigma / norms, -1.0, 1.0)
        angle = jnp.arccos(cosine)
        sigma = norms * (jnp.sin(angle) + (jnp.pi - angle) * cosine) / jnp.pi
        theta = sigma + theta * (jnp.pi - angle) / jnp.pi
    return theta


@partial(jax.jit, static_argnames="hidden")
def relu_tangents(x: jax.Array, hidden: int = 2) -> jax.Array:
    """Embeddings `[m, m]` whose products are `relu_kernel`, of all of `x [m, ...]` together.

    >>> x = jax.random.normal(jax.random.key(0), (5, 3))
    >>> rows = relu_tangents(x)
    >>> bool(jnp.allclose(rows @ rows.T, relu_kernel(x), atol=1e-3))
    True
    """
    theta = relu_kernel(x, hidden)
    jitter = _JITTER * jnp.mean(jnp.diagonal(theta))
    return jnp.linalg.cholesky(theta + jitter * jnp.eye(len(theta)))
