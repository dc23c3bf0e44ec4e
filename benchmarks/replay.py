"""Samples per second that memories take: 1,000 kept of a stream of samples of 512 numbers.

python -m benchmarks.replay                      [--out=benchmarks/results/replay.json]

Chunks are on the device already; what is measured is `memory.add`, compiled, its state donated.
Where other programs share the cores, what a second of processor time takes in is the better figure.
What the memory is worth: the accuracy, on new samples, of ridge regression on what it holds.
"""

import time

import jax
import jax.numpy as jnp
from absl import app, flags
from jax.scipy.linalg import cho_solve

from benchmarks.measure import write
from benchmarks.pages import speed
from pbcs_jax import replay
from pbcs_jax.compute import blas
from pbcs_jax.objectives import ridge as ridge_lib
from pbcs_jax.objectives.embeddings import normalise
from pbcs_jax.replay.base import Rows

_OUT = flags.DEFINE_string("out", "", "Where to keep the results.")
_SECONDS = flags.DEFINE_float("seconds", 10.0, "About how long each is measured.")
SIZE, NUMBERS, CLASSES = 1000, 512, 10


RIDGE = 0.1


def chunks(seed: int, count: int, rows: int) -> tuple[jax.Array, jax.Array]:
    """`x [count, rows, 512]` around one mean per class, `y [count, rows]`."""
    x_key, y_key = jax.random.split(jax.random.key(seed))
    y = jax.random.randint(y_key, (count, rows), 0, CLASSES)
    return jax.random.normal(x_key, (count, rows, NUMBERS)) + 4 * jax.nn.one_hot(y, NUMBERS), y


def rate(memory: replay.Memory, chunk: int, seconds: float) -> dict[str, float]:
    """Samples per second, of the clock and of the processor, by a memory that is full."""
    x, y = chunks(0, 12, chunk)
    state, add = memory.init(x[0], y[0]), jax.jit(memory.add, donate_argnums=1)
    key = jax.random.key(1)
    for number in range(12):
        state = add(jax.random.fold_in(key, number), state, x[number], y[number])
    found = {"chunk": chunk, "accuracy": accuracy(memory.rows(state))}
    x, y = x[0], y[0]
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        state = jax.block_until_ready(add(jax.random.fold_in(key, count), state, x, y))
        count += 1
    return found | {
        "samples_per_second": count * chunk / (time.perf_counter() - began),
        "samples_per_processor_second": count * chunk / (time.process_time() - cpu),
    }


def accuracy(stored: Rows) -> float:
    """The fraction of new samples that ridge regression on the stored ones gets right."""
    x, y = chunks(2, 1, 5000)
    rows, new = normalise(stored.x, x[0])
    # The weights of a slot are its share of the stream.
    root = jnp.sqrt(stored.weights / jnp.mean(stored.weights))[:, None]
    factor = ridge_lib.factor((root * rows) @ (root * rows).T, RIDGE)
    dual = cho_solve(factor, root * ridge_lib.encode(stored.y, CLASSES))
    return float(jnp.mean(jnp.argmax(new @ ((root * rows).T @ dual), axis=1) == y[0]))


def main(argv: list[str]) -> None:
    """Prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --seconds.")
    by_kernel = replay.by_kernel
    reduces = {
        "MergeReduce by the kernel": by_kernel(CLASSES, balanced=True),
        "the same by probabilities": by_kernel(CLASSES, exchanges=0),
    }
    sides: dict[str, tuple[replay.Memory, int]] = {
        "Reservoir": (replay.Reservoir(SIZE), 1000),
        "ClassBalancedReservoir": (replay.ClassBalancedReservoir(SIZE, CLASSES), 1000),
    }
    for name, reduce in reduces.items():
        for chunk in (500, 1000, 2000):
            sides[f"{name}, chunks of {chunk:,}"] = replay.MergeReduce(10, 100, reduce), chunk
    found = {}
    for name, (memory, chunk) in sides.items():
        with blas.one_thread():
            found[name] = rate(memory, chunk, _SECONDS.value)
    print(speed.replay({"memories": found}))
    if _OUT.value:
        write(_OUT.value, "replay", {"memories": found})


if __name__ == "__main__":
    app.run(main)
