"""How the time of an outer step and the memory of a run grow with K, n and M.

    python -m benchmarks.scaling --out=benchmarks/results/scaling.json

Times: `loop.step` with a network objective on random 28x28 pictures, 100 of them as outer data
so that K, n and M are seen apart; all points of a table interleaved. Memory: the largest resident
set of a fresh process that makes two outer steps, with the candidates themselves as outer data.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.pages import speed
from pbcs_jax import nets
from pbcs_jax.choices import Samples
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.outer import loop, masks
from pbcs_jax.outer.settings import Settings

_OUT = flags.DEFINE_string("out", "benchmarks/results/scaling.json", "Where the JSON goes.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Interleaved timed calls of each.", lower_bound=5)
_MEMORY_OF = flags.DEFINE_list("memory_of", [], "estimator,n,M,K: make that run and print its MB.")

MEMORY = [
    ("pge", 1_000, 8, 100),
    ("pge", 60_000, 8, 1000),
    ("hybrid", 60_000, 8, 1000),
    ("pge", 60_000, 32, 1000),
]


class Point(NamedTuple):
    """One outer step: the net, its training steps, K, n and M."""

    net: str
    steps: int
    size: int
    n: int = 10_000
    masks: int = 8


TABLES = {
    "K": [Point("convnet", 10, size) for size in (25, 100, 400)]
    + [Point("mlp", 100, size) for size in (25, 100, 400, 1000)],
    "n": [Point("mlp", 100, 100, n) for n in (1_000, 10_000, 60_000)],
    "M": [Point("mlp", 100, 100, masks=masks) for masks in (2, 8, 32)],
}


def outer_step(point: Point) -> Callable[[], Any]:
    """A compiled outer step at its first state."""
    rng = np.random.default_rng(0)
    draw = lambda count: (  # noqa: E731
        jnp.asarray(rng.standard_normal((count, 28, 28, 1), np.float32)),
        jnp.asarray(rng.integers(0, 10, count), jnp.int32),
    )
    net = nets.ConvNet(width=8) if point.net == "convnet" else nets.MLP()
    settings = Settings(num_masks=point.masks)
    evaluate = network_objective(
        nets.as_model(net),
        *draw(point.n),
        Samples(masks.capacities(point.n, point.size)),
        Network(Inner(steps=point.steps)),
        validation=draw(100),
        num_masks=point.masks,
    )
    state = loop.init(jax.random.key(0), point.n, point.size, settings)
    return lambda: loop.step(state, evaluate, settings)


def peak_megabytes(estimator: str, n: int, num_masks: int, size: int) -> float:
    """Of this process, when it has made two outer steps."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 28, 28, 1), np.float32)
    y = rng.integers(0, 10, n)
    objective = Network(Inner(steps=5))
    options: dict[str, Any] = {"num_masks": num_masks, "estimator": estimator, "outer_steps": 2}
    pbcs.select_coreset(jax.random.key(0), x, y, nets.MLP(), size, objective=objective, **options)
    # Not `resource`: there a child begins with the peak of its parent.
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    return int(line.split()[1]) / 1024


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --repeats.")
    if _MEMORY_OF.value:
        estimator, *numbers = _MEMORY_OF.value
        print(peak_megabytes(estimator, *map(int, numbers)))
        return
    times = []
    for varied, points in TABLES.items():
        sides = {str(number): outer_step(point) for number, point in enumerate(points)}
        median, _ = measure.medians(sides, _REPEATS.value)
        base: dict[str, float] = {}
        for number, point in enumerate(points):
            taken = median[str(number)]
            base.setdefault(point.net, taken)
            times.append({"varied": varied, **point._asdict(), "milliseconds": 1e3 * taken})
            times[-1]["over_first"] = taken / base[point.net]
        print(f"{varied}: done", file=sys.stderr)
    print(speed.scaling({"times": times}), "\n")
    memory = []
    for run in MEMORY:
        command = [
            sys.executable,
            "-m",
            "benchmarks.scaling",
            f"--memory_of={','.join(map(str, run))}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        memory.append(dict(zip(("estimator", "n", "masks", "size"), run, strict=True)))
        memory[-1]["peak_megabytes"] = float(done.stdout.split()[-1])
    print(speed.peak_memory({"memory": memory}))
    results = {"repeats": _REPEATS.value, "times": times, "memory": memory}
    measure.write(_OUT.value, "scaling", results)


if __name__ == "__main__":
    app.run(main)
