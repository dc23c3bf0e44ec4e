"""Seconds that each baseline takes to choose, and how those of the greedy one grow.

    python -m benchmarks.baselines --out=benchmarks/results/baselines.json

1,000 of 10,000 pictures, with the ConvNet as the proxy, and 100 clean validation pictures for those
that use them. The bundled MNIST has 4,000 training pictures: the 10,000 are random ones of them,
each shifted by up to two pixels. "first" is a call with nothing compiled before, "again" another
one with another key.

Then the greedy method at growing sizes beside PBCS with its kernel objective, both with the same
validation pictures. Greedy solves a problem of k samples for each k up to the size; PBCS takes the
same number of outer steps whatever the size.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.pages import speed
from pbcs_jax import data, nets
from pbcs_jax.baselines import BASELINES, Candidates

_OUT = flags.DEFINE_string("out", "benchmarks/results/baselines.json", "Where the JSON goes.")
_CANDIDATES = flags.DEFINE_integer("candidates", 10_000, "To choose from.", lower_bound=1)
_SIZE = flags.DEFINE_integer("size", 1000, "To choose, by every method.", lower_bound=1)
_SIZES = flags.DEFINE_list("sizes", ["100", "200", "400"], "To choose, by greedy and by PBCS.")


def shifted_mnist(n: int) -> Candidates:
    """n random bundled pictures, each shifted by up to two pixels, and 100 for validation."""
    problem = data.make_problem(
        data.load("bundled", name="mnist"), seed=0, num_candidates=0, num_validation=100
    )
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(problem.y), n)
    down, right = rng.integers(0, 5, (2, n))
    padded = np.pad(problem.x[rows], ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    height, width = problem.x.shape[1:3]
    i = (down[:, None] + np.arange(height))[:, :, None]
    j = (right[:, None] + np.arange(width))[:, None, :]
    x = padded[np.arange(n)[:, None, None], i, j]
    assert problem.x_val is not None and problem.y_val is not None  # as asked for
    validation = problem.x_val, problem.y_val
    return Candidates(
        x, problem.y[rows], problem.num_classes, nets.ConvNet(), validation, scale=False
    )


def first_and_again(select: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Seconds of `select(key, *arguments)` with all programs to be compiled, and of another."""
    jax.clear_caches()
    keys = jax.random.split(jax.random.key(0))
    first, again = (measure.seconds(partial(select, key, *arguments)) for key in keys)
    return {"first": first, "again": again}


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --size, --sizes, ...")
    candidates = shifted_mnist(_CANDIDATES.value)
    results: dict[str, Any] = {"candidates": _CANDIDATES.value, "size": _SIZE.value}
    results |= {"methods": [], "growth": []}

    def keep(table: str, row: dict[str, Any]) -> None:
        results[table].append(row)
        print(row, file=sys.stderr)
        measure.write(_OUT.value, "baselines", results)

    def pbcs_kernel(key: jax.Array, size: int) -> np.ndarray:
        x, y, validation = candidates.x, candidates.y, candidates.validation
        return pbcs.select_coreset(key, x, y, None, size, validation, objective="kernel").indices

    for size in map(int, _SIZES.value):
        greedy = first_and_again(BASELINES["greedy"], candidates, size)
        kernel = first_and_again(pbcs_kernel, size)
        keep("growth", {"size": size, "greedy": greedy, "pbcs": kernel})
    for name, select in BASELINES.items():
        seconds = first_and_again(select, candidates, _SIZE.value)
        keep("methods", {"method": name, **seconds})

    print(speed.baselines(results) + "\n")
    print(speed.growth(results))


if __name__ == "__main__":
    app.run(main)
