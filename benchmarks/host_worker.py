"""What each process of `benchmarks.hosts` selects: every objective that is spread over devices."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from pbcs_jax import nets, processes
from pbcs_jax.compute import mesh

_OUT = flags.DEFINE_string("out", "", "Where process 0 writes what was found.")
_DIFFERS = flags.DEFINE_enum("differs", "", ["", "x", "y", "key"], "What differs on the others.")
_ADDRESS = flags.DEFINE_list("address", [], "HOST:PORT, how many processes, number of this one.")

# So few that programs are compiled for one number of rows.
N, SIZE = 16, 8
TABLE = "kernel, 250 of a table"


def data() -> tuple[np.ndarray, np.ndarray]:
    """Pictures of three classes, and their labels."""
    labels = np.arange(N) % 3
    x = np.random.default_rng(0).normal(size=(N, 16, 16, 1)).astype(np.float32)
    return x + np.float32(0.5) * labels[:, None, None, None].astype(np.float32), labels


def table() -> tuple[np.ndarray, np.ndarray]:
    """Rows of three classes, of which enough are chosen for the default 'differences'."""
    labels = np.arange(600) % 3
    x = np.random.default_rng(0).normal(size=(600, 32)) + 0.5 * labels[:, None]
    return x.astype(np.float32), labels


def selections() -> dict[str, tuple[Any, dict[str, Any]]]:
    """By name: the model, and the options. Five masks divide by none of the numbers of devices."""
    loop = {"num_masks": 5, "outer_steps": 20}
    network = {"objective": pbcs.Network(pbcs.Inner(steps=5)), **loop}
    guarded = {"objective": pbcs.Kernel(candidate_weight=1.0), **loop}
    mlp, convnet = (
        nets.MLP(num_classes=3, hidden=(8,)),
        nets.ConvNet(num_classes=3, width=2),
    )
    return {
        "MLP, pge": (mlp, network),
        "MLP, hybrid": (mlp, {**network, "estimator": "hybrid"}),
        "ConvNet, pge": (convnet, network),
        "ConvNet, hybrid": (convnet, {**network, "estimator": "hybrid"}),
        "MLP, rows by index": (mlp, network),
        "kernel, pge": (None, {**guarded, "estimator": "pge"}),
        "kernel, hybrid": (None, {**guarded, "estimator": "hybrid"}),
        "kernel, differences": (
            None,
            {**loop, "objective": pbcs.Kernel(), "estimator": "differences"},
        ),
        TABLE: (None, {**loop, "objective": "kernel"}),
    }


def main(_: list[str]) -> None:
    """Writes indices and probabilities; or prints the error of a process that differs."""
    if _ADDRESS.value:
        coordinator, count, number = _ADDRESS.value
        processes.start(coordinator, int(count), int(number))
        mesh.LARGEST_GATHERED = 4  # gradients of few candidates are exchanged as those of many
    x, y = data()
    key, differs = 0, "" if processes.is_first() else _DIFFERS.value
    if differs == "x":
        x = x + np.float32(1e-3)
    y = np.roll(y, 1) if differs == "y" else y
    key = int(differs == "key")
    compute = pbcs.Compute(pbcs.mask_mesh())  # the kernel too takes all devices, not one per CPU
    found: dict[str, np.ndarray] = {}
    for name, (model, options) in selections().items():
        held_out = (x[:6], y[:6]) if name in ("kernel, pge", "kernel, hybrid") else None
        given = pbcs.Rows(lambda rows: x[rows], len(x)) if "rows" in name else x
        candidates, size = ((given, y), SIZE) if name != TABLE else (table(), 250)
        try:
            result = pbcs.select_coreset(
                *(key, *candidates, model, size, held_out),
                **options | {"compute": compute, "progress": False},
            )
        except pbcs.UserError as error:
            print(error, flush=True)
            sys.exit(2)
        found[f"{name}/probabilities"] = result.probabilities
        found[f"{name}/indices"] = result.indices
    if processes.is_first():
        np.savez(Path(_OUT.value), **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    app.run(main)
