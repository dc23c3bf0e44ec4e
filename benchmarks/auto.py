"""The default objective against our own presets, against itself with more time, and its sizes.

    python -m benchmarks.auto --part=presets --mnist=mnist.npz   'auto' in the time of a preset
    python -m benchmarks.auto --part=budgets                     10, 60 and 300 seconds
    python -m benchmarks.auto --part=sizes --npz=table.npz       size='auto', and a grid of sizes

presets: a preset of configs/ selects; 'auto' selects from the same candidates, and its budget is
what the preset took with compiling; the preset's evaluation judges both, with the same seeds.
budgets: MNIST, 100 of 1,000, the cells and the judges of `benchmarks.peers`.
sizes: for each size of the grid a full run of 'auto'. The smallest is looked for whose networks
have, on the test set, at most the tolerance less than networks that were trained on everything.

Each result is saved at once, and a run that was interrupted goes on where it stopped.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.peer_problems import CORRUPTIONS, SIZES, Judges, Sizes, problem_of
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.judge import make_judges
from pbcs_jax.experiments.summarization import EXPERIMENT

_PART = flags.DEFINE_enum("part", "presets", ["presets", "budgets", "sizes"], "What.")
_OUT = flags.DEFINE_string("out", "benchmarks/results/auto.json", "Where the JSON goes.")
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "Which.")
_MNIST = flags.DEFINE_string("mnist", "", "All of MNIST, for the presets; else the bundled part.")
_NPZ = flags.DEFINE_string("npz", "mnist", "Of the sizes: mnist, or a file as for peers.")
_CANDIDATES = flags.DEFINE_integer("candidates", 1000, "Of the sizes; 0: all.", lower_bound=0)
_BUDGET = flags.DEFINE_float("budget", 60.0, "Seconds of a run of the sizes.", lower_bound=0)
_ONLY = flags.DEFINE_list("only", [], "Problems of the presets, or cells of the budgets.")

PRESETS = {
    "clean": ("mnist", "best", {}),
    "clean of 10000": ("mnist", "best", {"data.num_candidates": 10_000}),
    "50 % noise": ("mnist_noise", "kernel", {}),
    "imbalance 50": ("mnist_imbalance", "kernel", {}),
}
BUDGETS = (10.0, 60.0, 300.0)
TOLERANCE = 0.01
RATIO, SMALLEST = 1.25, 0.04
"""Of neighbours in the grid, and of the smallest to all candidates."""
NETWORKS, BATCH = 4, 64
_COMPILING = "/jax/core/compile/"


class Results:
    """What was measured, by part, problem, seed and side; saved after each."""

    def __init__(self, out: str, part: str):
        self._out = out
        path = Path(out)
        self._parts: dict[str, Any] = (
            json.loads(path.read_text())["parts"] if path.is_file() else {}
        )
        self.found = self._parts.setdefault(part, {})

    def of(self, problem: str, seed: int, side: str, measured: Callable, *args: Any) -> dict:
        """The row, measured if it is not there yet."""
        row = self.found.setdefault(problem, {}).setdefault(str(seed), {})
        if side not in row:
            row[side] = measured(*args)
            print(f"{problem}, seed {seed}, {side}: {row[side]}", file=sys.stderr, flush=True)
            measure.write(self._out, "auto", {"parts": self._parts})
        return row[side]


class Watch:
    """Seconds of a call, and how many of them it compiled."""

    def __init__(self) -> None:
        self.seconds = self.compiling = 0.0

    def __call__(self, function: Callable[[], Any]) -> Any:
        """Calls it."""
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        began = time.perf_counter()
        try:
            return function()
        finally:
            self.seconds = time.perf_counter() - began
            jax.monitoring.unregister_event_duration_listener(self._heard)

    def _heard(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith(_COMPILING):
            self.compiling += seconds

    @property
    def row(self) -> dict[str, float]:
        """For JSON."""
        own = self.seconds - self.compiling
        return {"seconds": round(own, 1), "compile_seconds": round(self.compiling, 1)}


def presets(results: Results) -> list[list[str]]:
    """A preset, then 'auto' in its time; the rows of a table."""
    names = [name for name in PRESETS if not _ONLY.value or name in _ONLY.value]
    for name in names:
        for seed in map(int, _SEEDS.value):
            jax.clear_caches()
            own = results.of(name, seed, "preset", _judged, name, seed, None)
            results.of(
                name, seed, "auto", _judged, name, seed, own["seconds"] + own["compile_seconds"]
            )
    return _rows(results, names, ("preset", "auto"))


def _judged(name: str, seed: int, budget: float | None) -> dict[str, Any]:
    """What the preset of a problem gives, or 'auto' with a time budget."""
    file, preset, changes = PRESETS[name]
    config = importlib.import_module(f"pbcs_jax.configs.{file}").get_config(preset)
    config.update_from_flattened_dict(changes)
    config.seed = seed
    if _MNIST.value:
        config.update_from_flattened_dict({"data.source": "npz", "data.path": _MNIST.value})
    if budget is not None:
        config.update_from_flattened_dict({"selection.objective": "auto", "time_budget": budget})
    config_lib.check(config)
    problem = config_lib.load_problem(config)
    task = EXPERIMENT.task(config, problem)
    own, _, judge = config_lib.keys(config)
    watch = Watch()
    if budget is None:
        result = watch(lambda: task.select(own, None, lambda *_: None))
    else:
        result = watch(lambda: task.select(own, None, lambda _: None))
    network = make_judges(config, problem, task, judge)[config.evaluation.model]
    drawn = [result.indices] * config.evaluation.num_seeds
    accuracies = [a for found in network(drawn) for a in found]
    wrong = int(np.sum((problem.y != problem.y_true)[result.indices]))
    return {"network": float(np.mean(accuracies)), "wrong": wrong, **watch.row}


def budgets(results: Results) -> list[list[str]]:
    """'auto' with more and more time."""
    cells = [cell for cell in CORRUPTIONS if not _ONLY.value or cell in _ONLY.value]
    sides = [f"{budget:g} s" for budget in BUDGETS]
    for cell in cells:
        for seed in map(int, _SEEDS.value):
            problem, judges = _problem("mnist", cell, seed, SIZES["mnist"], networks=2)
            for budget, side in zip(BUDGETS, sides, strict=True):
                validation = problem.validation if cell != "clean" else None
                arguments = (seed, problem.x, problem.y, None, SIZES["mnist"].size, validation)
                results.of(f"MNIST, {cell}", seed, side, _one, arguments, judges, budget)
    return _rows(results, [f"MNIST, {cell}" for cell in cells], sides)


def _problem(name: str, cell: str, seed: int, sizes: Sizes, networks: int, batch_size: int = 0):
    """The candidates, and who judges what was chosen of them."""
    jax.clear_caches()
    problem = problem_of(name, cell, seed, sizes)
    test = problem.x_test, problem.y_test
    pool = problem.x, problem.y
    return problem, Judges(pool, test, problem.num_classes, seed, networks, batch_size)


def _one(arguments: tuple, judges: Judges, budget: float) -> dict[str, Any]:
    """What one run of 'auto' took, found, and is worth."""
    watch = Watch()
    result = watch(lambda: pbcs.select_coreset(*arguments, time_budget=budget, progress=False))
    own = {"size": len(result.indices), "trials": result.choice.plan.trials}
    return {**judges(result.indices), **own, **watch.row}


def sizes(results: Results) -> list[list[str]]:
    """size='auto', and a full run for each size of a grid."""
    name = f"{Path(_NPZ.value).stem}, {_CANDIDATES.value or 'all'}"
    lines = []
    for seed in map(int, _SEEDS.value):
        sizes_of = Sizes(_CANDIDATES.value, 0)
        problem, judges = _problem(_NPZ.value, "clean", seed, sizes_of, NETWORKS, BATCH)
        n = len(problem.y)
        data, budget = (seed, problem.x, problem.y, None), _BUDGET.value
        auto = results.of(name, seed, "auto", _one, (*data, "auto"), judges, budget)
        everything = results.of(name, seed, "everything", judges, np.arange(n))["network"]
        wanted = everything - TOLERANCE
        count = round(np.log(SMALLEST) / -np.log(RATIO))
        grid = {}
        for k in [round(n / RATIO**i) for i in range(1, count + 1)]:
            jax.clear_caches()
            grid[k] = results.of(name, seed, f"grid {k}", _one, (*data, k), judges, budget)
        enough = [k for k in grid if grid[k]["network"] >= wanted]
        total = lambda row: row["seconds"] + row["compile_seconds"]  # noqa: E731
        share = total(auto) / sum(map(total, grid.values()))
        numbers = [seed, auto["size"], min(enough, default=n), f"{share:.2f}"]
        numbers += [f"{100 * v:.1f}" for v in (auto["network"], everything)]
        lines.append([name, *map(str, numbers)])
    return lines


def _rows(results: Results, names: list[str], sides: Any) -> list[list[str]]:
    lines = []
    for name in names:
        rows = results.found[name]
        for side in sides:
            of = [row[side] for seed, row in rows.items() if side in row and seed in _SEEDS.value]
            values = {key: [row.get(key, np.nan) for row in of] for key in ("network", "logistic")}
            seconds = [f"{np.mean([row[key] for row in of]):.1f}" for key in of[0] if "sec" in key]
            lines.append([name, side, *map(_mean, values.values()), *seconds, str(len(of))])
    return lines


def _mean(values: list[float]) -> str:
    """With its standard error, in percent."""
    if np.isnan(values).any():
        return ""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{100 * np.mean(values):.1f} ± {100 * error:.1f}"


COLUMNS = ["problem", "side", "network", "logistic", "seconds", "compile seconds", "seeds"]
OF_SIZES = ["data", "seed", "auto's size", "grid's size", "share of the grid's time"]
OF_SIZES += ["auto's accuracy", "everything's accuracy"]
PARTS = {"presets": presets, "budgets": budgets, "sizes": sizes}


def main(argv: list[str]) -> None:
    """Measures, and prints a table in Markdown."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --part and the other flags")
    part = str(_PART.value)
    results = Results(_OUT.value, part)
    columns = COLUMNS if part != "sizes" else OF_SIZES
    print(measure.markdown(columns, PARTS[part](results)))


if __name__ == "__main__":
    app.run(main)
