"""A million candidates: seconds per outer step and memory, by networks and by the kernel.

    python -m benchmarks.million [--candidates=1000000] [--size=1000] [--steps=10]
    python -m benchmarks.million --kernel=pge,hybrid,differences

By networks the candidates come from a mapped file of the shape of CIFAR-10's pictures and of random
content; it is made in --folder, if it is not there, and stays. By the kernel they are a table of
random numbers with 512 columns, in memory. Memory is what the process holds itself (anonymous),
without mapped files; by the kernel that includes the table that it is called with, 2 GB.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from pbcs_jax import nets

_CANDIDATES = flags.DEFINE_integer("candidates", 1_000_000, "n.")
_SIZE = flags.DEFINE_integer("size", 1000, "K.")
_STEPS = flags.DEFINE_integer("steps", 10, "Outer steps.")
_KERNEL = flags.DEFINE_list("kernel", [], "Estimators by the kernel, in place of networks.")
_COLUMNS = 512
_FOLDER = flags.DEFINE_string("folder", tempfile.gettempdir(), "Where the file is kept.")
_PIECE = 10_000


def pictures(folder: Path, n: int) -> Path:
    """A file of n random pictures."""
    path = folder / f"pictures_{n}.npy"
    if not path.exists():
        beside = path.with_suffix(".tmp")
        shape = (n, 32, 32, 3)
        array = np.lib.format.open_memmap(beside, mode="w+", dtype=np.uint8, shape=shape)
        rng = np.random.default_rng(0)
        for start in range(0, n, _PIECE):
            piece = array[start : start + _PIECE]
            piece[...] = rng.integers(0, 256, piece.shape, np.uint8)
        array.flush()
        beside.rename(path)
    return path


def anonymous() -> float:
    """Gigabytes that this process holds itself."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 2**20
    return float("nan")


class Watch:
    """Times and memory of outer steps, as a callback."""

    def __init__(self) -> None:
        self._times = [(time.monotonic(), time.process_time())]
        self._memory = [anonymous()]

    def __call__(self, state: Any, metrics: Any) -> None:
        self._times.append((time.monotonic(), time.process_time()))
        self._memory.append(anonymous())

    def text(self) -> str:
        """Of the steps after the first, which compiles."""
        taken = np.diff(self._times, axis=0)
        step, busy = np.median(taken[1:], axis=0)
        return (
            f"{step:.2f} s per step ({busy:.2f} s of the processor), first step {taken[0][0]:.1f} "
            f"s, anonymous memory at most {max(self._memory):.2f} GB"
        )


def by_networks(n: int) -> None:
    """Prints one line."""
    rows = pbcs.Rows.of_npy(str(pictures(Path(_FOLDER.value), n)))
    watch = Watch()
    pbcs.select_coreset(
        *(0, rows, np.arange(n) % 10, nets.MLP(num_classes=10, hidden=(32,)), _SIZE.value),
        objective=pbcs.Network(pbcs.Inner(steps=10, optimizer="adam", learning_rate=0.003)),
        num_masks=8,
        outer_steps=_STEPS.value,
        callback=watch,
        callback_every=1,
    )
    print(f"n = {n:,}, K = {_SIZE.value:,}, M = 8: {watch.text()}", flush=True)


def by_kernel(n: int, estimator: str) -> None:
    """Prints one line."""
    x = np.random.default_rng(0).standard_normal((n, _COLUMNS), np.float32)
    watch, num_masks = Watch(), 1 if estimator == "differences" else 8
    pbcs.select_coreset(
        *(0, x, np.arange(n) % 10, None, _SIZE.value),
        objective=pbcs.Kernel(embeddings="raw", ridge=0.1),
        estimator=estimator,
        num_masks=num_masks,
        outer_steps=_STEPS.value,
        callback=watch,
        callback_every=1,
    )
    what = f"kernel, {estimator}, n = {n:,}, d = {_COLUMNS}, K = {_SIZE.value:,}, M = {num_masks}"
    print(f"{what}: {watch.text()}", flush=True)


def main(_: list[str]) -> None:
    """Prints a line per selection."""
    pbcs.use_all_cores()
    for estimator in _KERNEL.value:
        by_kernel(_CANDIDATES.value, estimator)
    if not _KERNEL.value:
        by_networks(_CANDIDATES.value)


if __name__ == "__main__":
    app.run(main)
