"""One training step of M models side by side, against PyTorch training one model after another.

    python -m benchmarks.inner --out=benchmarks/results/train_lib.json

Forward, backward and SGD (0.1, momentum 0.9) on the full batch of K samples, float32, to the same
weights on both sides. Ours is `pbcs_jax.inner.train`, compiled; the M models are trained with
`vmap`, with `lax.map` (one after another inside the program), and over a mesh of one device per
core, `lax.map` on each, which is what the library does on CPU. PyTorch is an eager loop
with its default number of threads. Repeats are interleaved and medians are reported.

PyTorch's threads wait for each other, so on a busy machine its times grow out of all proportion:
compare core with core there, `taskset -c 0 python -m benchmarks.inner`.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from flax import linen as nn

from benchmarks import measure
from benchmarks.pages import speed
from benchmarks.torch_nets import torch_convnet, torch_mlp, torch_resnet18
from pbcs_jax import nets
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.inner import losses
from pbcs_jax.inner import train as train_lib

_OUT = flags.DEFINE_string("out", "benchmarks/results/train_lib.json", "Where the JSON goes.")
_STEPS = flags.DEFINE_integer(
    "steps", 0, "Training steps in one timed call; 0: 100 for the MLP, 10 for the others."
)
_REPEATS = flags.DEFINE_integer(
    "repeats", 5, "Interleaved timed calls of each side.", lower_bound=5
)


OURS = ("vmap", "map", "cores")


class Row(NamedTuple):
    """One line of the table: `torch_net` builds from the `torch` module the same net as `net`."""

    name: str
    net: nn.Module
    shape: tuple[int, int, int]
    size: int
    masks: int
    torch_net: Callable[[Any], Any]


ROWS = [
    Row("ConvNet-32", nets.ConvNet(width=32), (28, 28, 1), 100, 5, torch_convnet(32)),
    Row("ConvNet-8", nets.ConvNet(width=8), (28, 28, 1), 100, 5, torch_convnet(8)),
    Row("MLP", nets.MLP(), (28, 28, 1), 10, 8, torch_mlp),
    Row("MLP", nets.MLP(), (28, 28, 1), 100, 8, torch_mlp),
    Row("ResNet-18 (16)", nets.ResNet18(width=16), (32, 32, 3), 32, 2, torch_resnet18(16)),
]


def our_training(row: Row, x: np.ndarray, y: np.ndarray, steps: int) -> dict[str, Callable]:
    """The library's inner loop: three compiled functions `() -> final losses [M]`.

    Args:
      x: `[M, K, ...]`.
      y: `[M, K]`.
    """
    model = nets.as_model(row.net)
    variables = jax.jit(jax.vmap(model.init))(jax.random.split(jax.random.key(0), row.masks), x)
    settings = train_lib.Inner(steps=steps, schedule="constant")

    def train(variables, x, y):
        coreset = train_lib.Coreset(x, y, jnp.ones(len(y)))
        key = jax.random.key(0)
        return train_lib.train(model, losses.cross_entropy, settings, key, variables, coreset).loss

    together = jax.jit(jax.vmap(train))
    in_turn = jax.jit(lambda *batch: jax.lax.map(lambda one: train(*one), batch))
    mesh = mesh_lib.mask_mesh()
    spread = mesh_lib.map_masks(lambda _, one: train(*one), mesh, chunk=1)
    on_cores = jax.jit(lambda *batch: spread((), batch))
    arguments = jax.tree.map(jnp.asarray, (variables, x, y))
    everywhere = mesh_lib.replicate(arguments, mesh)
    return {
        "vmap": lambda: together(*arguments),
        "map": lambda: in_turn(*arguments),
        "cores": lambda: on_cores(*everywhere),
    }


def torch_training(torch: Any, row: Row, x: np.ndarray, y: np.ndarray, steps: int) -> Callable:
    """A function that trains M models one after another."""
    inputs = torch.from_numpy(np.moveaxis(x, -1, 2).copy())
    labels = torch.from_numpy(y.astype(np.int64))

    def train() -> None:
        for one_input, one_label in zip(inputs, labels, strict=True):
            net = row.torch_net(torch)
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for _ in range(steps):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(net(one_input), one_label).backward()
                optimiser.step()

    return train


def measure_row(torch: Any, row: Row, steps: int, repeats: int) -> dict[str, Any]:
    """Milliseconds per step and mask of each side, and the machine's matmul rate beside them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((row.masks, row.size, *row.shape), np.float32)
    y = rng.integers(0, 10, (row.masks, row.size), np.int32)
    matrix = jnp.asarray(rng.standard_normal((1536, 1536), np.float32))
    matmul = jax.jit(jnp.matmul)
    sides = {
        **our_training(row, x, y, steps),
        "torch": torch_training(torch, row, x, y, steps),
        "matmul": lambda: matmul(matrix, matrix),
    }
    median, compiling = measure.medians(sides, repeats)
    share = {name: 1e3 * median[name] / (steps * row.masks) for name in (*OURS, "torch")}
    return {
        "net": row.name,
        "size": row.size,
        "masks": row.masks,
        "steps": steps,
        "compile_seconds": {name: compiling[name] for name in OURS},
        "milliseconds": share,
        "speedup": {name: share["torch"] / share[name] for name in OURS},
        "matmul_gflops": 2 * matrix.shape[0] ** 3 / median["matmul"] / 1e9,
    }


def convnet_gflop(width: int, size: int) -> float:
    """Useful work of a step on 28x28x1: every product but those for the gradient of the input."""
    first = 24 * 24 * 25 * width
    rest = 8 * 8 * 25 * width * 2 * width + 32 * width * 4 * width + 4 * width * 10
    return 2 * size * (2 * first + 3 * rest) / 1e9


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --steps, --repeats.")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        sys.exit("benchmarks.inner compares with PyTorch: pip install 'pbcs_jax[bench]' first.")
    mesh_lib.use_all_cores()
    results = []
    for row in ROWS:
        # A whole inner loop where that is affordable: what is done once per loop counts as well.
        steps = _STEPS.value or (100 if isinstance(row.net, nets.MLP) else 10)
        results.append(measure_row(torch, row, steps, _REPEATS.value))
        print(f"{row.name}, K = {row.size}: done", file=sys.stderr)
    print("Milliseconds per training step and mask:\n")
    print(speed.inner({"rows": results}))
    rate = results[0]["matmul_gflops"]
    work = convnet_gflop(32, ROWS[0].size)
    for name, ms in results[0]["milliseconds"].items():
        results[0].setdefault("share_of_matmul_rate", {})[name] = 1e3 * work / ms / rate
    shares = results[0]["share_of_matmul_rate"]
    print(
        f"\nThis machine's matmul rate beside ConvNet-32: {rate:.0f} GFLOP/s; share of it reached"
    )
    print("in useful work: " + ", ".join(f"{name} {100 * s:.0f} %" for name, s in shares.items()))
    measure.write(
        _OUT.value,
        "inner",
        {"torch_threads": torch.get_num_threads(), "repeats": _REPEATS.value, "rows": results},
        torch=torch.__version__,
    )


if __name__ == "__main__":
    app.run(main)
