"""Samples: a mask chooses rows, which are packed into a fixed number of them."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.inner.train import Coreset, Tail
from pbcs_jax.outer import masks as masks_lib


class _Own(NamedTuple):
    """Of one mask: `indices [rows]` and `weights [rows]` of its samples, and `mask [n]`."""

    indices: jax.Array
    weights: jax.Array
    mask: jax.Array


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["levels"])
@dataclasses.dataclass(frozen=True)
class Samples:
    """Masks over n candidates.

    Attributes:
      levels: ascending numbers of rows that masks are packed into, the smallest that has room for
        all masks of a step, see `masks.capacities`.
    """

    levels: tuple[int, ...]

    def pack(self, masks: jax.Array) -> tuple[_Own, jax.Array, jax.Array]:
        """Each mask's own arrays, the masks without what overflowed, and the rows needed."""
        packed = masks_lib.pack_masks(masks, self.levels[-1])
        most = jnp.max(jnp.sum(packed.weights > 0, axis=-1))
        return _Own(packed.indices, packed.weights, packed.masks), packed.masks, most

    def cut(self, own: _Own, rows: int) -> _Own:
        """The first `rows` rows of every mask."""
        return own._replace(indices=own.indices[:, :rows], weights=own.weights[:, :rows])

    def training_data(self, own: _Own, x: jax.Array, y: jax.Array) -> Coreset:
        """The chosen rows, and padding of weight 0."""
        return Coreset(x[own.indices], y[own.indices], own.weights)

    def show(self, own: _Own, x: jax.Array) -> jax.Array:
        """The inputs as they are."""
        return x

    def path_gradient(
        self,
        own: _Own,
        x: jax.Array,
        losses_of: Callable[[Any, jax.Array], jax.Array],
        outer_of: Callable[[_Own], jax.Array],
        tail: Tail,
    ) -> jax.Array:
        """dL/dm for all n candidates, chosen or not.

        The training gradient of a step is g = sum_i m_i g_i / W with W = sum_i m_i, so one more
        unit of candidate i changes it by (g_i - g) / W, and the outer loss by the product of that
        with the step's cotangent v. All products v.g_i come from one forward-mode pass over the
        candidates.

        Args:
          own: of the mask.
          x: `[n, ...]` candidates.
          losses_of: `(variables, x) -> [n]` training losses.
          outer_of: not needed here: samples are not seen by the outer loss.
          tail: of the training on this mask.

        Returns:
          `[n]`.
        """

        def one_step(total, step):
            variables, cotangent, weight = step

            def losses(params):
                return losses_of({**variables, "params": params}, x)

            _, products = jax.jvp(losses, (variables["params"],), (cotangent,))
            mean = own.mask @ products / jnp.maximum(jnp.sum(own.mask), 1e-6)
            return total + (products - mean) / jnp.maximum(weight, 1.0), None

        return jax.lax.scan(one_step, jnp.zeros_like(own.mask), tail)[0]
