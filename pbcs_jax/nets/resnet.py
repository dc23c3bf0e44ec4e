"""Residual networks for 32x32 images: ResNet-18 and ResNet-32 are one module."""

from collections.abc import Callable, Sequence
from functools import partial

import flax.linen as nn
import jax

from pbcs_jax.nets.conv import Conv
from pbcs_jax.nets.norm import BatchNorm


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 projection where the shape changes."""

    features: int
    strides: tuple[int, int]
    norm: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[B, H, W, C]` to `[B, H / sh, W / sw, features]`."""
        conv = partial(Conv, self.features, use_bias=False)
        y = nn.relu(self.norm(conv((3, 3), self.strides)(x)))
        y = self.norm(conv((3, 3))(y))
        if x.shape != y.shape:
            x = self.norm(conv((1, 1), self.strides)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A 3x3 stem, stages of basic blocks that each halve the image and double the width, the mean.

    Attributes:
      num_classes: number of outputs.
      width: channels of the stem and of the first stage.
      stages: number of blocks of each stage.
    """

    num_classes: int = 10
    width: int = 64
    stages: Sequence[int] = (2, 2, 2, 2)

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        train: bool = False,
        mask: jax.Array | None = None,
        embed: bool = False,
    ) -> jax.Array:
        """Logits `[B, num_classes]` of `x` `[B, H, W, C]`, or with `embed` `[B, 8 * width]`.

        Rows with `mask` 0 take no part in the batch statistics.
        """

        def norm(x: jax.Array) -> jax.Array:
            return BatchNorm(train)(x, None if mask is None else mask > 0)

        x = nn.relu(norm(Conv(self.width, (3, 3), use_bias=False)(x)))
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                strides = (2, 2) if stage > 0 and block == 0 else (1, 1)
                x = BasicBlock(self.width * 2**stage, strides, norm)(x)
        x = x.mean(axis=(1, 2))
        return x if embed else nn.Dense(self.num_classes)(x)


class ResNet18(ResNet):
    """ResNet-18 as used for CIFAR: no max-pool, so that four stages see 32, 16, 8 and 4 pixels."""


class ResNet32(ResNet):
    """The CIFAR ResNet of 32 layers: three stages of five blocks at 16, 32 and 64 channels."""

    width: int = 16
    stages: Sequence[int] = (5, 5, 5)
