"""The small convolutional network of the MNIST experiments."""

import flax.linen as nn
import jax

from pbcs_jax.nets.conv import Conv, swap_batch, wants_batch_last


class ConvNet(nn.Module):
    """Conv 5x5, pool, conv 5x5, pool, dense, dense, with ReLU between.

    Each pooling comes before the bias and the ReLU, which changes no value and saves work. Dropout
    (if any) acts on the outputs of the convolutions, before the pooling, and of the first dense
    layer, as in the published network.

    Attributes:
      num_classes: number of outputs.
      width: channels of the first convolution; the second has twice, the dense layer four times.
      dropout: probability that a value is dropped when training.
    """

    num_classes: int = 10
    width: int = 32
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        train: bool = False,
        mask: jax.Array | None = None,
        embed: bool = False,
    ) -> jax.Array:
        """Logits `[B, num_classes]` of `x` `[B, H, W, C]`, or with `embed` `[B, 4 * width]`.

        `mask` is not needed: rows do not meet each other here.
        """
        batch_last = wants_batch_last(self.width)
        x = swap_batch(x) if batch_last else x
        for width in (self.width, 2 * self.width):
            layer = Conv(
                width,
                (5, 5),
                padding="VALID",
                pool=True,
                dropout=self.dropout,
                batch_last=batch_last,
            )
            x = nn.relu(layer(x, train))
        x = swap_batch(x) if batch_last else x
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(4 * self.width)(x))
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return x if embed else nn.Dense(self.num_classes)(x)
