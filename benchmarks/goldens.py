"""Whether the code still selects what it selected before, bit by bit.

    python -m benchmarks.goldens            compares with benchmarks/results/goldens.npz
    python -m benchmarks.goldens --write    makes that file anew

What is kept: indices, probabilities, outer losses and accuracies of every `:smoke` preset from the
command line (all methods, all points of a sweep), and of calls of `select_coreset` and
`select_features`. Another machine, or another version of JAX, may round differently: then make the
file anew from the commit to compare with. Exits with 1 if anything differs.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from pbcs_jax import nets

ROOT = Path(__file__).parents[1]
STORED = Path("benchmarks/results/goldens.npz")
_WRITE = flags.DEFINE_bool("write", False, "Keep what is found as the new goldens.")
_ONLY = flags.DEFINE_string("only", "", "Only what has this in its name.")

Arrays = dict[str, Any]


def pictures(folder: Path, classes: int = 10) -> Path:
    """A file of made pictures of the shape of CIFAR-10's, or of CIFAR-100's."""
    rng = np.random.default_rng(0)
    y_train, y_test = np.arange(40 * classes) % classes, np.arange(4 * classes) % classes
    step, shape = 50 // classes, (32, 32, 3)
    x_train = rng.integers(0, 200, (len(y_train), *shape), np.uint8)
    x_test = rng.integers(0, 200, (len(y_test), *shape), np.uint8)
    x_train = x_train + step * y_train[:, None, None, None]
    x_test = x_test + step * y_test[:, None, None, None]
    path = folder / f"pictures{classes}.npz"
    train: Arrays = {"x_train": x_train.astype(np.uint8), "y_train": y_train}
    np.savez(path, **train, x_test=x_test.astype(np.uint8), y_test=y_test)
    return path


def smoke(config: str, folder: Path) -> Arrays:
    """What the `:smoke` preset of a config selects, by every method, and how it is judged."""
    workdir = folder / config
    flags_ = [f"--config=configs/{config}.py:smoke", f"--workdir={workdir}"]
    if "cifar" in config or config == "npz":
        path = pictures(folder, 100 if "cifar100" in config else 10)
        flags_ += ["--config.data.source=npz", f"--config.data.path={path}"]
    done = subprocess.run([sys.executable, "launch.py", *flags_], cwd=ROOT, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{config}:smoke failed:\n{done.stderr.decode()}")
    found: Arrays = {}
    for file in sorted(workdir.rglob("*")):
        name = f"{config}:smoke {file.relative_to(workdir)}"
        if file.name == "coreset.npz":
            with np.load(file) as arrays:
                found |= {f"{name} {key}": arrays[key] for key in arrays}
        elif file.parent.name == "methods":
            record = json.loads(file.read_text())
            for number, coreset in enumerate(record["coresets"]):
                found[f"{name} coreset {number}"] = np.array(coreset)
            for net, runs in record["runs"].items():
                found[f"{name} {net}"] = np.array(runs)
        elif file.name == "metrics.jsonl":
            lines = map(json.loads, file.read_text().splitlines())
            found[f"{name} outer_loss"] = np.array([line["outer_loss"] for line in lines])
    return found


def calls() -> dict[str, Callable[[], pbcs.Result]]:
    """Calls from Python: every objective, estimator and option that changes what is selected."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = rng.normal(size=(120, 6, 6, 1)).astype(np.float32) + 0.5 * y[:, None, None, None]
    held_out = (x[:30] + 0.1, y[:30])
    key, net = jax.random.key(0), nets.MLP(num_classes=3, hidden=(16,))
    network = pbcs.Network(pbcs.Inner(steps=8))
    short: dict[str, Any] = {"num_masks": 4, "outer_steps": 6}

    def samples(validation=None, **options):
        return lambda: pbcs.select_coreset(key, x, y, net, 12, validation, **short, **options)

    def inputs(validation=None, **options):
        return lambda: pbcs.select_features(key, x, y, net, 8, validation, **short, **options)

    def kernel_then_network():
        return samples(objective="kernel_then_network")()

    groups = np.repeat(np.arange(18), 2).reshape(6, 6, 1)
    adam = pbcs.Inner(steps=8, optimizer="adam", batch_size=5, shared_init=False)
    brier = pbcs.Network(adam, outer_loss="brier", outer_batch=50)
    guarded = pbcs.Kernel(candidate_weight=1.0)
    moved = pbcs.InputKernel(exchanges=5, shifts=0.5, samples=60, exchange_samples=80)
    two, three = (dataclasses.replace(network, path_steps=steps) for steps in (2, 3))
    selected = dataclasses.replace(network, outer_on="selected")
    tangents = pbcs.Kernel(embeddings="trained_ntk+raw")
    return {
        "samples network": samples(objective=network),
        "samples network gumbel": samples(objective=network, estimator="gumbel"),
        "samples network hybrid": samples(held_out, objective=network, estimator="hybrid"),
        "samples network path": samples(objective=three, estimator="path"),
        "samples network options": samples(
            objective=brier, size_schedule="cubic", final="sample", max_ratio=2.0
        ),
        "samples kernel": samples(objective="kernel"),
        "samples kernel validation": samples(held_out, objective=guarded, estimator="hybrid"),
        "samples kernel ntk": samples(held_out, objective=tangents),
        "samples kernel exchanges": samples(objective=pbcs.Kernel(exchanges=20)),
        "samples kernel max_ratio": samples(held_out, objective="kernel", max_ratio=1.5),
        "samples kernel_then_network": kernel_then_network,
        "inputs network": inputs(objective=network),
        "inputs network hybrid": inputs(held_out, objective=two, estimator="hybrid"),
        "inputs network selected": inputs(objective=selected, groups=groups),
        "inputs kernel": inputs(objective="kernel"),
        "inputs kernel options": inputs(held_out, objective=moved, groups=groups, smooth=0.7),
    }


def gather(only: str) -> Arrays:
    """All of it, by name."""
    found: Arrays = {}
    for name, call in calls().items():
        if only in name:
            result = call()
            found[f"{name} indices"] = result.indices
            found[f"{name} probabilities"] = result.probabilities
            found[f"{name} outer_loss"] = result.history["outer_loss"]
            print(name, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "configs").glob("*.py")):
            if only in f"{path.stem}:smoke" and path.stem != "__init__":
                found |= smoke(path.stem, Path(folder))
                print(f"{path.stem}:smoke", file=sys.stderr)
    return found


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --write, --only.")
    found = gather(_ONLY.value)
    if _WRITE.value:
        with np.load(STORED) as stored:  # with --only, the others stay as they are
            kept = {n: stored[n] for n in stored if _ONLY.value and _ONLY.value not in n}
        found = kept | found
        np.savez_compressed(STORED, **found)
        print(f"{len(found)} arrays in {STORED}, {os.path.getsize(STORED) // 1024} KB")
        return
    with np.load(STORED) as stored:
        names = [name for name in stored if _ONLY.value in name]
        same = [name for name in names if np.array_equal(stored[name], found.get(name, []))]
        different = [name for name in names if name not in same]
    for name in different:
        print("missing" if name not in found else "different", name)
    new = [name for name in found if name not in names]
    print(f"{len(same)} of {len(names)} arrays are bit-equal, {len(new)} are new")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    app.run(main)
