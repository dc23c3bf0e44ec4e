"""Nets by name, for configurations."""

import inspect
from typing import Any

import flax.linen as nn

from pbcs_jax.errors import UserError, check_known
from pbcs_jax.nets.convnet import ConvNet
from pbcs_jax.nets.mlp import MLP
from pbcs_jax.nets.resnet import ResNet18, ResNet32

NETS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "convnet": ConvNet,
    "resnet18": ResNet18,
    "resnet32": ResNet32,
}


def create(name: str, num_classes: int, **options: Any) -> nn.Module:
    """The net of that name.

    Args:
      name: 'mlp', 'convnet', 'resnet18' or 'resnet32'.
      num_classes: number of outputs.
      **options: the net's own attributes, such as `width` or `dropout`.

    Example:
      >>> create('mlp', 10, dropout=0.2).hidden
      (100, 100)
    """
    check_known("net", name, NETS)
    net = NETS[name]
    allowed = set(inspect.signature(net).parameters) - {"num_classes", "parent", "name"}
    if unknown := sorted(set(options) - allowed):
        raise UserError(
            f"option of net {name!r} is {', '.join(unknown)}: use {', '.join(sorted(allowed))}"
        )
    return net(num_classes=num_classes, **options)
