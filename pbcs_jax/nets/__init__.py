"""Neural networks in flax.linen, the convolution they share, and how the library sees a model."""

from pbcs_jax.nets.conv import Conv, max_pool
from pbcs_jax.nets.convnet import ConvNet
from pbcs_jax.nets.flax_nnx import from_nnx
from pbcs_jax.nets.mlp import MLP
from pbcs_jax.nets.model import Model, Variables, as_model
from pbcs_jax.nets.registry import create
from pbcs_jax.nets.resnet import ResNet, ResNet18, ResNet32

__all__ = [
    "MLP",
    "Conv",
    "ConvNet",
    "Model",
    "ResNet",
    "ResNet18",
    "ResNet32",
    "Variables",
    "as_model",
    "create",
    "from_nnx",
    "max_pool",
]
