"""Samples per second that memories take: 1,000 kept of a stream of samples of 512 numbers.

python -m benchmarks.replay                      [--out=benchmarks/results/replay.json]

Chunks are on the device already; what is measured is `memory.add`, compiled, its state donated.
Where other programs share the cores, what a second of processor time takes in is the better figure.
"""

import dataclasses
import time

import jax
from absl import app, flags

from benchmarks.measure import write
from benchmarks.pages import speed
from pbcs_jax import replay
from pbcs_jax.compute import blas
from pbcs_jax.replay.kernel import FEW_STEPS

_OUT = flags.DEFINE_string("out", "", "Where to keep the results.")
_SECONDS = flags.DEFINE_float("seconds", 10.0, "About how long each is measured.")
SIZE, NUMBERS, CLASSES = 1000, 512, 10


def rate(memory: replay.Memory, chunk: int, seconds: float) -> dict[str, float]:
    """Samples per second, of the clock and of the processor, by a memory that is full."""
    x_key, y_key, key = jax.random.split(jax.random.key(0), 3)
    y = jax.random.randint(y_key, (chunk,), 0, CLASSES)
    x = jax.random.normal(x_key, (chunk, NUMBERS)) + 4 * jax.nn.one_hot(y, NUMBERS)
    state, add = memory.init(x, y), jax.jit(memory.add, donate_argnums=1)
    for number in range(12):
        state = add(jax.random.fold_in(key, number), state, x, y)
    jax.block_until_ready(state)
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        state = jax.block_until_ready(add(jax.random.fold_in(key, count), state, x, y))
        count += 1
    return {
        "chunk": chunk,
        "samples_per_second": count * chunk / (time.perf_counter() - began),
        "samples_per_processor_second": count * chunk / (time.process_time() - cpu),
    }


def main(argv: list[str]) -> None:
    """Prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --seconds.")
    fast = dataclasses.replace(FEW_STEPS, outer_steps=20)
    reduces = {
        "MergeReduce by the kernel, 20 steps": replay.by_kernel(
            CLASSES, settings=fast, exchanges=0
        ),
        "MergeReduce by the kernel, 40 steps": replay.by_kernel(CLASSES, exchanges=0),
        "MergeReduce by the kernel, in order": replay.by_kernel(CLASSES, balanced=True),
    }
    sides: dict[str, tuple[replay.Memory, int]] = {
        "Reservoir": (replay.Reservoir(SIZE), 1000),
        "ClassBalancedReservoir": (replay.ClassBalancedReservoir(SIZE, CLASSES), 1000),
    }
    sides |= {name: (replay.MergeReduce(10, 100, reduce), 2000) for name, reduce in reduces.items()}
    found = {}
    for name, (memory, chunk) in sides.items():
        with blas.one_thread():
            found[name] = rate(memory, chunk, _SECONDS.value)
    print(speed.replay({"memories": found}))
    if _OUT.value:
        write(_OUT.value, "replay", {"memories": found})


if __name__ == "__main__":
    app.run(main)
