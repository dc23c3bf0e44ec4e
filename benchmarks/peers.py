"""Against what people would install instead: apricot, coreax, cleanlab, imbalanced-learn, and more.

    python -m benchmarks.peers                             all data sets, three seeds, hours
    python -m benchmarks.peers --quick                     one seed of MNIST and wine, minutes
    python -m benchmarks.peers --data=mnist --skip=greedy  some of it
    python -m benchmarks.peers --data= --npz=cifar10.npz   500 of 5,000 from a file

The packages are in the extra `bench`; one that is not installed gives a row that says so. Every
method chooses K of the same candidates, which are clean, or have half of their labels wrong, or
have 50 times as many of the first class as of the last. In the last two cells there is a clean,
balanced validation set beside them; the table says which methods look at it. What is chosen is
judged by networks that are trained on it (a ConvNet on pictures, an MLP on tables) and by logistic
regression: the accuracy on the same clean test set, at the last step. "validation set alone" is no
method that chooses: the judges are trained on the clean validation set and on nothing else.

A seed is another choice of candidates, of wrong labels, of the method and of the judge's weights.
Seconds are those of the choice alone, with what it compiles: by the clock, and of the processor,
which other work on the machine changes less. Each result is saved at once, and a run that was
interrupted goes on where it stopped.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks import measure
from benchmarks.peer_methods import AUTO, INPUTS, KERNEL, SAMPLES, Cell, Method, Missing, clocks
from benchmarks.peer_problems import CORRUPTIONS, SIZES, Judges, Sizes, network_for, problem_of
from benchmarks.peer_tables import VALIDATION, table, verdict
from pbcs_jax.baselines import Candidates
from pbcs_jax.errors import UserError, check_known, one_line

_OUT = flags.DEFINE_string("out", "benchmarks/results/peers.json", "Where the JSON goes.")
_QUICK = flags.DEFINE_bool("quick", False, "One seed of MNIST and wine, few baselines.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "How many.", lower_bound=1)
_DATA = flags.DEFINE_list("data", None, "Data sets; all of them if not given.")
_NPZ = flags.DEFINE_string("npz", "", "A file with x_train, y_train, x_test, y_test.")
_SIZE = flags.DEFINE_integer("size", 500, "K, of the file.", lower_bound=1)
_CANDIDATES = flags.DEFINE_integer("candidates", 5000, "Of the file; 0: all.", lower_bound=0)
_CORRUPTIONS = flags.DEFINE_list("corruptions", ["clean", "noise", "imbalance"], "Which.")
_SKIP = flags.DEFINE_list("skip", [], "Methods to leave out, such as greedy.")
_NETWORKS = flags.DEFINE_integer("networks", 1, "That judge each choice.", lower_bound=1)
_INPUTS = flags.DEFINE_bool("inputs", True, "Choose inputs of the tables too.")

SLOW = ("kcenter", "hardest", "el2n", "forgetting", "craig", "moderate")
"""Baselines that --quick leaves out: each trains networks on all candidates."""


class Results:
    """What was measured, by cell, seed and method; saved after each."""

    def __init__(self, out: str):
        self._out = out
        path = Path(out)
        self.found: dict[str, Any] = {}
        if path.is_file():
            try:
                self.found = json.loads(path.read_text())["cells"]
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"out is {out!r}, which holds no results of this benchmark: give another file"
                ) from error

    def has(self, cell: str, seed: int, method: str) -> bool:
        """Whether there is nothing left to do."""
        return str(seed) in self.found.get(cell, {}).get(method, {})

    def keep(self, cell: str, seed: int, method: str, row: dict[str, Any]) -> None:
        """Adds one, and saves all; what is missing today is left to a later run."""
        print(f"{cell}, seed {seed}, {method}: {row}", file=sys.stderr, flush=True)
        if "missing" in row:
            return
        self.found.setdefault(cell, {}).setdefault(method, {})[str(seed)] = row
        measure.write(self._out, "peers", {"cells": self.found}, **_versions())


def _versions() -> dict[str, str]:
    found = {}
    for name in ("scikit-learn", "apricot-select", "coreax", "cleanlab", "imbalanced-learn"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def attempt(
    judge: Callable[[np.ndarray], dict[str, Any]], method: Method, cell: Cell
) -> dict[str, Any]:
    """A row: what a method took and how it is judged, or why there is nothing to judge."""
    _, before = cell.shared.get(method.shares, (None, (0.0, 0.0)))
    began = clocks()
    try:
        chosen = np.sort(np.asarray(method.select(cell)))
        spent = np.round(np.array(before) + clocks() - began, 2).tolist()
        if not 0 < len(np.unique(chosen)) == len(chosen) <= cell.size:
            raise ValueError(f"{len(chosen)} indices, {len(np.unique(chosen))} of them distinct")
        return {"size": len(chosen), "seconds": spent[0], "processor": spent[1], **judge(chosen)}
    except Missing as reason:
        return {"missing": str(reason)}
    except (UserError, ValueError) as error:  # a method that cannot do it is a result too
        return {"failed": one_line(error)}


def sample_cell(name: str, corruption: str, networks: int) -> str:
    """What a cell of samples is called."""
    sizes = _sizes(name)
    of = f"{sizes.size} of {sizes.candidates or 'all'}"
    return f"{Path(name).stem}, {of}, {corruption}, {networks} networks"


def input_cell(name: str, networks: int) -> str:
    """What a cell of inputs is called."""
    return f"{name}, {SIZES[name].inputs} inputs, clean, {networks} networks"


def _sizes(name: str) -> Sizes:
    return SIZES.get(name) or Sizes(_CANDIDATES.value, _SIZE.value)


def measure_samples(
    results: Results, name: str, corruption: str, seed: int, networks: int, skip: list[str]
) -> None:
    """One cell of samples for one seed, by all methods that are not there yet."""
    cell = sample_cell(name, corruption, networks)
    jax.clear_caches()  # a process has room for a few thousand compiled programs
    methods = {k: m for k, m in SAMPLES.items() if k not in skip}
    corrupted = corruption != "clean"
    if all(results.has(cell, seed, method) for method in methods):
        return
    sizes = _sizes(name)
    problem = problem_of(name, corruption, seed, sizes)
    validation = problem.validation if corrupted else None
    n, count, test = len(problem.y), problem.num_classes, (problem.x_test, problem.y_test)
    proxy = network_for(problem.x, count)  # the judge's, which favours those that train it
    given = Cell(
        Candidates(problem.x, problem.y, count, proxy, validation, scale=False),
        *(sizes.size, seed, {}),
    )
    pool = problem.x, problem.y
    if validation is not None:
        pool = np.concatenate([pool[0], validation[0]]), np.concatenate([pool[1], validation[1]])
    judges = Judges(pool, test, count, seed, networks)
    wrong = problem.y != problem.y_true
    if validation is not None and not results.has(cell, seed, VALIDATION):
        alone = np.arange(n, len(pool[1]))
        results.keep(cell, seed, VALIDATION, {"size": len(alone), **judges(alone)})
    for label, method in methods.items():
        if not results.has(cell, seed, label):
            row = attempt(
                lambda chosen: {"wrong": int(wrong[chosen].sum()), **judges(chosen)}, method, given
            )
            results.keep(cell, seed, label, row)


def measure_inputs(results: Results, name: str, seed: int, networks: int, skip: list[str]) -> None:
    """One cell of inputs of a table for one seed."""
    cell = input_cell(name, networks)
    problem = problem_of(name, "clean", seed, SIZES[name])
    given = Cell(
        Candidates(problem.x, problem.y, problem.num_classes, scale=False),
        *(SIZES[name].inputs, seed, {}),
    )

    def judged(chosen: np.ndarray) -> dict[str, float]:
        pool, test = (problem.x[:, chosen], problem.y), (problem.x_test[:, chosen], problem.y_test)
        judges = Judges(pool, test, problem.num_classes, seed, networks)
        return judges(np.arange(len(problem.y)))

    for label, method in INPUTS.items():
        if label not in skip and not results.has(cell, seed, label):
            results.keep(cell, seed, label, attempt(judged, method, given))


def run(
    results: Results, names: list[str], seeds: int, networks: int, skip: list[str]
) -> Iterator[str]:
    """Measures what is asked for, and yields a table per data set, then the verdicts."""
    sampled, inputs = [], []
    for name in names:
        cells = [sample_cell(name, corruption, networks) for corruption in _CORRUPTIONS.value]
        for seed in range(seeds):
            for corruption in _CORRUPTIONS.value:
                measure_samples(results, name, corruption, seed, networks, skip)
        uses = {label: method.uses_validation for label, method in SAMPLES.items()}
        rows = [VALIDATION, *(label for label in SAMPLES if label not in skip)]
        yield f"### {Path(name).stem}\n\n" + table(results.found, cells, rows, seeds, uses)
        sampled += cells
    for name in names:
        if _INPUTS.value and name in SIZES and SIZES[name].inputs:
            for seed in range(seeds):
                measure_inputs(results, name, seed, networks, skip)
            cells = [input_cell(name, networks)]
            rows = [label for label in INPUTS if label not in skip]
            yield f"### {name}, inputs\n\n" + table(results.found, cells, rows, seeds)
            inputs += cells
    if inputs:
        yield "Inputs: " + verdict(results.found, inputs, KERNEL, seeds)
    for method in (KERNEL, AUTO):
        yield verdict(results.found, sampled, method, seeds)


def main(argv: list[str]) -> None:
    """Measures, and prints tables in Markdown."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --quick, --seeds, --data, ...")
    warnings.simplefilter("ignore")  # of classes with one sample, of solvers that stop early
    few = ["mnist", "wine"] if _QUICK.value else list(SIZES)
    names = few if _DATA.value is None else [name for name in _DATA.value if name]
    skip = [*_SKIP.value, *(SLOW if _QUICK.value else ())]
    seeds = 1 if _QUICK.value else _SEEDS.value
    try:
        for name in names:
            check_known("data", name, SIZES)
        for corruption in _CORRUPTIONS.value:
            check_known("corruption", corruption, CORRUPTIONS)
        for method in _SKIP.value:
            check_known("method to skip", method, {**SAMPLES, **INPUTS})
        if _NPZ.value:
            names.append(_NPZ.value)
        results = Results(_OUT.value)
        for part in run(results, names, seeds, _NETWORKS.value, skip):
            print(part + "\n", flush=True)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    app.run(main)
