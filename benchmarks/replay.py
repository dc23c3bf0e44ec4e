"""Samples per second that memories take: 1,000 kept of a stream of samples of 512 numbers.

python -m benchmarks.replay                      [--out=benchmarks/results/replay.json]

Chunks are on the device already; what is measured is `memory.add`, compiled, its state donated.
"""

import time

import jax
from absl import app, flags

from benchmarks.measure import markdown, write
from pbcs_jax import replay

_OUT = flags.DEFINE_string("out", "", "Where to keep the results.")
_SECONDS = flags.DEFINE_float("seconds", 10.0, "About how long each is measured.")
SIZE, NUMBERS, CLASSES = 1000, 512, 10


def rate(memory: replay.Memory, chunk: int, seconds: float) -> float:
    """Samples per second after the first chunks, which are compiled and fill the memory."""
    x_key, y_key, key = jax.random.split(jax.random.key(0), 3)
    y = jax.random.randint(y_key, (chunk,), 0, CLASSES)
    x = jax.random.normal(x_key, (chunk, NUMBERS)) + 4 * jax.nn.one_hot(y, NUMBERS)
    state, add = memory.init(x, y), jax.jit(memory.add, donate_argnums=1)
    for number in range(12):
        state = add(jax.random.fold_in(key, number), state, x, y)
    jax.block_until_ready(state)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        state = jax.block_until_ready(add(jax.random.fold_in(key, count), state, x, y))
        count += 1
    return count * chunk / (time.perf_counter() - began)


def main(argv: list[str]) -> None:
    """Prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --seconds.")
    by_kernel = replay.by_kernel(CLASSES, exchanges=0)
    balanced = replay.by_kernel(CLASSES, balanced=True)
    sides = {
        "Reservoir": (replay.Reservoir(SIZE), 1000),
        "ClassBalancedReservoir": (replay.ClassBalancedReservoir(SIZE, CLASSES), 1000),
        "MergeReduce by the kernel": (replay.MergeReduce(10, 100, by_kernel), 2000),
        "MergeReduce by the kernel, in order": (replay.MergeReduce(10, 100, balanced), 2000),
    }
    found = {}
    for name, (memory, chunk) in sides.items():
        found[name] = {"chunk": chunk, "samples_per_second": rate(memory, chunk, _SECONDS.value)}
        print(name, f"{found[name]['samples_per_second']:,.0f}", flush=True)
    rows = [[n, r["chunk"], f"{r['samples_per_second']:,.0f}"] for n, r in found.items()]
    print(markdown(["memory of 1,000", "chunk", "samples per second"], rows))
    if _OUT.value:
        write(_OUT.value, "replay", {"memories": found})


if __name__ == "__main__":
    app.run(main)
