"""The multi-layer perceptron."""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax


class MLP(nn.Module):
    """Flattens, then dense layers with ReLU; dropout (if any) after each hidden layer.

    Attributes:
      num_classes: number of outputs.
      hidden: width of each hidden layer.
      dropout: probability that a hidden activation is dropped when training.
    """

    input_kernel: ClassVar[tuple[str, ...]] = ("Dense_0", "kernel")

    num_classes: int = 10
    hidden: Sequence[int] = (100, 100)
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        train: bool = False,
        mask: jax.Array | None = None,
        embed: bool = False,
    ) -> jax.Array:
        """Logits `[B, num_classes]` of `x` `[B, ...]`, or with `embed` the last hidden layer.

        `mask` is not needed: rows do not meet each other here.
        """
        x = x.reshape(x.shape[0], -1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
            x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return x if embed else nn.Dense(self.num_classes)(x)
