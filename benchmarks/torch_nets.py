"""The nets of `pbcs_jax.nets` in PyTorch, built from the `torch` module that they are given."""

from collections.abc import Callable
from typing import Any


def torch_mlp(torch: Any) -> Any:
    t = torch.nn
    layers = [t.Linear(784, 100), t.ReLU(), t.Linear(100, 100), t.ReLU(), t.Linear(100, 10)]
    return t.Sequential(t.Flatten(), *layers)


def torch_convnet(width: int) -> Callable[[Any], Any]:
    def build(torch: Any) -> Any:
        t = torch.nn
        first = [t.Conv2d(1, width, 5), t.MaxPool2d(2), t.ReLU()]
        second = [t.Conv2d(width, 2 * width, 5), t.MaxPool2d(2), t.ReLU(), t.Flatten()]
        dense = [t.Linear(32 * width, 4 * width), t.ReLU(), t.Linear(4 * width, 10)]
        return t.Sequential(*first, *second, *dense)

    return build


def torch_resnet18(width: int) -> Callable[[Any], Any]:
    def build(torch: Any) -> Any:
        t = torch.nn

        def conv(c_in: int, c_out: int, kernel: int, stride: int) -> Any:
            padding = kernel // 2
            layer = t.Conv2d(c_in, c_out, kernel, stride, padding, bias=False)
            return t.Sequential(layer, t.BatchNorm2d(c_out))

        class Block(t.Module):  # type: ignore[name-defined]
            def __init__(self, c_in: int, c_out: int, stride: int):
                super().__init__()
                first, second = conv(c_in, c_out, 3, stride), conv(c_out, c_out, 3, 1)
                self.body = t.Sequential(first, t.ReLU(), second)
                same = c_in == c_out
                self.shortcut = t.Identity() if same else conv(c_in, c_out, 1, stride)

            def forward(self, x: Any) -> Any:
                return torch.relu(self.body(x) + self.shortcut(x))

        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = []
        for stage in range(4):
            blocks.append(Block(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(Block(widths[stage + 1], widths[stage + 1], 1))
        head = [t.AdaptiveAvgPool2d(1), t.Flatten(), t.Linear(8 * width, 10)]
        return t.Sequential(conv(3, width, 3, 1), t.ReLU(), *blocks, *head)

    return build
