"""Nets by name, for configurations."""

import inspect
from typing import Any

import flax.linen as nn

from pbcs_jax.errors import UserError
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
    if name not in NETS:
        raise UserError(f"there is no net {name!r}: use one of {', '.join(NETS)}.")
    net = NETS[name]
    allowed = set(inspect.signature(net).parameters) - {"num_classes", "parent", "name"}
    if unknown := sorted(set(options) - allowed):
        raise UserError(
            f"net {name!r} has no option {', '.join(unknown)}: "
            f"leave it out or use {', '.join(sorted(allowed))}."
        )
    return net(num_classes=num_classes, **options)
