"""Inputs: a mask chooses columns or pixels, or groups of them; the others are set to 0."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.errors import UserError
from pbcs_jax.inner.train import Coreset, Tail


@partial(jax.tree_util.register_dataclass, data_fields=["groups"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Inputs:
    """Masks over n groups of inputs.

    Attributes:
      groups: int32 of the shape of one sample, the number of each input's group, see `numbers`.
    """

    groups: jax.Array | np.ndarray

    levels = (0,)  # all samples are trained on: there is one number of rows only

    def pack(self, masks: jax.Array) -> tuple[jax.Array, None, int]:
        """The masks themselves; nothing can overflow."""
        return masks, None, 0

    def cut(self, own: jax.Array, rows: int) -> jax.Array:
        """The masks as they are."""
        return own

    def training_data(self, own: jax.Array, x: jax.Array, y: jax.Array) -> Coreset:
        """All samples, with the chosen inputs only."""
        return Coreset(self.show(own, x), y, jnp.ones(len(x)))

    def show(self, own: jax.Array, x: jax.Array) -> jax.Array:
        """`x [N, ...]` with the inputs that are not chosen set to 0."""
        return x * own[self.groups]

    def path_gradient(
        self,
        own: jax.Array,
        x: jax.Array,
        losses_of: Callable[[Any, jax.Array], jax.Array],
        outer_of: Callable[[jax.Array], jax.Array],
        tail: Tail,
    ) -> jax.Array:
        """dL/dm for all n groups, chosen or not: through the last training steps, and directly.

        Args:
          own: the mask `[n]`.
          x: `[N, ...]` samples.
          losses_of: `(variables, x) -> [N]` training losses.
          outer_of: `mask -> outer loss` of the trained network.
          tail: of the training on this mask.

        Returns:
          `[n]`.
        """

        def change(mask):
            def step(total, one):
                variables, cotangent, _ = one

                def training_loss(params):
                    losses = losses_of({**variables, "params": params}, self.show(mask, x))
                    return jnp.mean(losses)

                _, slope = jax.jvp(training_loss, (variables["params"],), (cotangent,))
                return total + slope, None

            return jax.lax.scan(step, 0.0, tail)[0] + outer_of(mask)

        return jax.grad(change)(own)


def numbers(groups: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The number of the group that each input belongs to; each its own where None is given.

    Args:
      groups: integers that broadcast to `shape`, from 0 to the number of groups less 1, or None.
      shape: of one sample.

    Returns:
      int32 array of `shape`.

    >>> numbers(None, (2, 2)).tolist()
    [[0, 1], [2, 3]]
    >>> numbers([0, 0, 1], (3,)).tolist()
    [0, 0, 1]
    """
    if groups is None:
        return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    given = np.asarray(groups)
    if not np.issubdtype(given.dtype, np.integer):
        raise UserError(f"groups are of type {given.dtype}: give the number of each input's group")
    try:
        full = np.broadcast_to(given, shape)
    except ValueError as error:
        raise UserError(
            f"groups have shape {given.shape}: it must be that of a sample, {shape}"
        ) from error
    used = np.unique(full)
    if not np.array_equal(used, np.arange(len(used))):
        raise UserError(
            f"groups run from {used[0]} to {used[-1]} with {len(used)} in use: number them from 0 "
            "without gaps"
        )
    return full.astype(np.int32)


def neighbourhood(groups: np.ndarray, width: float) -> Callable[[jax.Array], jax.Array]:
    """A function `[n] -> [n]` that gives each group of inputs the mean of those around it.

    Args:
      groups: `[height, width, ...]`, the number of each input's group, see `numbers`.
      width: the standard deviation of a Gaussian, in pixels, over the first two axes.

    >>> smooth = neighbourhood(np.arange(4).reshape(1, 4), 0.5)
    >>> print(np.asarray(smooth(jnp.array([0.0, 1.0, 0.0, 0.0])), float).round(2))
    [0.12 0.79 0.11 0.  ]
    """
    if groups.ndim < 2 or width < 0:
        raise UserError(
            f"smooth is {width} and a sample has shape {groups.shape}: use at least 0, and 0 "
            "unless samples are pictures, of shape [height, width, ...]"
        )
    count = int(groups.max()) + 1
    sizes = np.bincount(groups.ravel())

    def weights(length):
        distances = np.subtract.outer(np.arange(length), np.arange(length))
        gaussian = np.exp(-(distances**2) / (2 * width**2))
        return jnp.asarray(gaussian / gaussian.sum(axis=1, keepdims=True), jnp.float32)

    rows, columns = (weights(length) for length in groups.shape[:2])

    def smooth(gradient):
        spread = jnp.einsum("ab,cd,bd...->ac...", rows, columns, (gradient / sizes)[groups])
        return jnp.zeros(count, gradient.dtype).at[groups].add(spread)

    return smooth
