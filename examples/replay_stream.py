"""A memory fed from a stream: a plain Python iterator, or a source of tensorflow-datasets.

    python examples/replay_stream.py                       a million made samples of 512 numbers
    python examples/replay_stream.py --samples=20000
    python examples/replay_stream.py --tfds=mnist          a copy that tensorflow-datasets prepared

The memory never sees more than one chunk. Whatever yields `(x, y)` can feed it; a dataset of grain
is such an iterator, of dicts as those of tensorflow-datasets.
"""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
from absl import app, flags

from pbcs_jax import replay

Samples = Iterable[tuple[Any, Any]]


def chunks(samples: Samples, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`(x [size, ...], y [size])` of an iterable of samples `(x, y)`; a short rest is left out."""
    samples = iter(samples)
    while len(own := list(islice(samples, size))) == size:
        x, y = zip(*own, strict=True)
        yield np.stack(x), np.asarray(y, np.int32)


def from_dicts(source: Iterable[dict[str, Any]]) -> Samples:
    """The samples of a source of tensorflow-datasets or grain."""
    return ((example["image"], example["label"]) for example in source)


def made(count: int, classes: int = 10) -> Samples:
    """Samples of 512 numbers around the centres of their classes, one by one."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, 512)).astype(np.float32)
    noise = rng.normal(size=(1000, 512)).astype(np.float32)
    for i, y in enumerate(rng.integers(0, classes, count)):
        yield centres[y] + noise[i % 1000], y


def feed(memory: replay.Memory, samples: Samples, chunk: int) -> tuple[Any, int]:
    """The state of the memory after the whole stream, and the number of samples."""
    add, key, state, count = jax.jit(memory.add), jax.random.key(0), None, 0
    for number, (x, y) in enumerate(chunks(samples, chunk)):
        state = memory.init(x, y) if state is None else state
        state = add(jax.random.fold_in(key, number), state, x, y)
        count += len(y)
    return jax.block_until_ready(state), count


def main(argv: list[str]) -> None:
    """Feeds a class-balanced memory of 1,000, and prints what it has."""
    samples = made(_SAMPLES.value)
    if _TFDS.value:
        import tensorflow_datasets as tfds

        samples = from_dicts(tfds.data_source(_TFDS.value, split="train"))
    memory = replay.ClassBalancedReservoir(1000, num_classes=10)
    began = time.perf_counter()
    state, count = feed(memory, samples, chunk=1000)
    rate = count / (time.perf_counter() - began)
    print(f"{count:,} samples, {rate:,.0f} per second, Python iterator included")
    print("stored of each class:", state.counts.tolist())


_SAMPLES = flags.DEFINE_integer("samples", 1_000_000, "How many made samples.")
_TFDS = flags.DEFINE_string("tfds", "", "A data set of tensorflow-datasets with images.")

if __name__ == "__main__":
    app.run(main)
