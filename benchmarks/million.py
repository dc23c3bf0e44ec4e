"""A million candidates from a mapped file: seconds per outer step and memory.

    python -m benchmarks.million [--candidates=1000000] [--size=1000] [--steps=10]

The file has the shape of CIFAR-10's pictures and random content; it is made in --folder, if it is
not there, and stays. Memory is what the process holds itself (anonymous), without mapped files.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from pbcs_jax import nets

_CANDIDATES = flags.DEFINE_integer("candidates", 1_000_000, "n.")
_SIZE = flags.DEFINE_integer("size", 1000, "K.")
_STEPS = flags.DEFINE_integer("steps", 10, "Outer steps.")
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


def main(_: list[str]) -> None:
    """Prints one line."""
    n = _CANDIDATES.value
    rows = pbcs.Rows.of_npy(str(pictures(Path(_FOLDER.value), n)))
    y = np.arange(n) % 10
    times, memory = [(time.monotonic(), time.process_time())], [anonymous()]

    def look(state, metrics):
        times.append((time.monotonic(), time.process_time()))
        memory.append(anonymous())

    pbcs.select_coreset(
        *(0, rows, y, nets.MLP(num_classes=10, hidden=(32,)), _SIZE.value),
        objective=pbcs.Network(pbcs.Inner(steps=10, optimizer="adam", learning_rate=0.003)),
        num_masks=8,
        outer_steps=_STEPS.value,
        callback=look,
        callback_every=1,
    )
    taken = np.diff(times, axis=0)
    step, busy = np.median(taken[1:], axis=0)
    print(
        f"n = {n:,}, K = {_SIZE.value:,}, M = 8: {step:.2f} s per step ({busy:.2f} s of the "
        f"processor), first step {taken[0][0]:.1f} s, anonymous memory at most {max(memory):.2f} GB"
    )


if __name__ == "__main__":
    app.run(main)
