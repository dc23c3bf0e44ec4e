"""Training in the span of the coreset: the first layer's work does not grow with the input.

Every gradient of the kernel W that the inputs X `[K, d]` are multiplied with is X'D for some D, so
under gradient descent, with momentum too, W moves only in the span of the coreset's inputs. With
X = LQ, the rows of Q orthonormal, X W = L (Q W): training QW on the inputs L `[K, K]` is training W
on X, step by step, and W(t) = W(0) + Q'(QW(t) - QW(0)). The rest of the net does not notice. This
is exact, not an approximation, and K d becomes K K in every step. Adam's steps leave the span.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pbcs_jax.nets.model import Model


def is_smaller(model: Model, x: jax.Array) -> bool:
    """Whether the span of `x` `[K, ...]` is worth entering: K at most half of the inputs."""
    return model.input_kernel is not None and 2 * x.shape[0] <= x[0].size


def enter(
    model: Model, optimizer: optax.GradientTransformation, progress: Any, x: jax.Array
) -> tuple[Any, jax.Array, Callable[[Any], Any]]:
    """A training run taken into the span of its inputs.

    Args:
      model: with an `input_kernel`.
      optimizer: gradient descent, momentum or not; its state goes along.
      progress: a NamedTuple with `variables` and `opt_state`.
      x: `[K, ...]`.

    Returns:
      The progress in the span, the inputs there `[K, K]`, and a function that takes progress back.
    """
    basis, lower = jnp.linalg.qr(x.reshape(x.shape[0], -1).T)  # X' = Q'L'

    def on_kernel(function, params):
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: (
                function(leaf) if tuple(k.key for k in path) == model.input_kernel else leaf
            ),
            params,
        )

    params = progress.variables["params"]
    is_kernel = on_kernel(lambda _: True, jax.tree.map(lambda _: False, params))

    def replace(progress, params, function):
        # The optimiser's momentum is a sum of gradients: it lies in the span, and goes along.
        opt_state = optax.tree.map_params(
            optimizer, lambda m, here: function(m) if here else m, progress.opt_state, is_kernel
        )
        variables = {**progress.variables, "params": params}
        return progress._replace(variables=variables, opt_state=opt_state)

    small = on_kernel(lambda w: basis.T @ w, params)

    def back(end):
        moved = jax.tree.map(jnp.subtract, end.variables["params"], small)
        moved = on_kernel(lambda w: basis @ w, moved)
        return replace(end, jax.tree.map(jnp.add, params, moved), lambda m: basis @ m)

    return replace(progress, small, lambda m: basis.T @ m), lower.T, back
