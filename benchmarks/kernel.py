"""Seconds to choose 500 of 4,000 pictures by the kernel: as it was, and as it is.

    python -m benchmarks.kernel

Three sides, interleaved: the policy gradient with LAPACK on all cores (as it was), the same with
LAPACK on one thread, and the default now. The first two run a few outer steps, and their whole time
is that of the first step with all that comes before it, and the median of the others for the rest.
"""

import contextlib
import statistics
import time
from unittest import mock

import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.pages import speed
from pbcs_jax import data
from pbcs_jax.compute import blas

_OUT = flags.DEFINE_string("out", "benchmarks/results/kernel.json", "Where to write.")
_REPEATS = flags.DEFINE_integer("repeats", 3, "Runs of each side.")
STEPS = 400
"""Outer steps of the policy gradient."""


def main(argv: list[str]) -> None:
    """Runs it."""
    del argv
    source = data.load("bundled")
    x = np.asarray(source.x_train, np.float32).reshape(len(source.x_train), -1)

    def run(**options) -> float:
        start = time.perf_counter()
        pbcs.select_coreset(
            0, x, source.y_train, None, 500, objective="kernel", progress=False, **options
        )
        return time.perf_counter() - start

    def whole(steps: int) -> float:
        times = [time.perf_counter()]
        note = lambda state, metrics: times.append(time.perf_counter())  # noqa: E731
        run(estimator="pge", outer_steps=steps, callback=note, callback_every=1)
        first, *others = np.diff(times).tolist()
        return first + (STEPS - 1) * statistics.median(others)

    def all_cores() -> float:
        with mock.patch.object(blas, "one_thread", contextlib.nullcontext):
            return whole(5)

    sides = {"policy gradient": all_cores, "one thread": lambda: whole(15), "now": run}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(_REPEATS.value):
        for name, side in sides.items():
            times[name].append(side())
            print(name, round(times[name][-1], 1), flush=True)
    print(speed.kernel({"seconds": times}))
    measure.write(_OUT.value, "kernel", {"seconds": times})


if __name__ == "__main__":
    app.run(main)
