"""Sweeps: any experiment at several points and for several seeds, one run after another.

Each run has a folder of its own below the sweep's, and resumes where it stopped; so does the sweep.
It ends in a table and a figure: mean and standard deviation over the seeds.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict
from rich.console import Console
from rich.markup import escape

from pbcs_jax import processes
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.workdir import open_workdir, origin
from pbcs_jax.report.figures import sweep_figure
from pbcs_jax.report.files import checksum, write_atomically, write_json
from pbcs_jax.report.page import Entry, save_all, write_report
from pbcs_jax.report.tables import (
    SECONDS,
    Cell,
    Rows,
    column_table,
    markdown_table,
    scale,
    sweep_table,
    terminal_table,
)

Run = Callable[[ConfigDict, str, Console], dict[str, Any]]

METRICS = {
    "test_accuracy": "test accuracy, %",
    "wrong_labels": "wrong labels, %",
    "class_gap": "class gap, %",
    SECONDS: "processor seconds",
}
"""What is gathered where the runs have it; and `NET_accuracy` of transfers."""


def swept(run: Run) -> Run:
    """The experiment, which at a config with sweep.points or sweep.seeds runs all of these."""

    def run_or_sweep(config: ConfigDict, workdir: str, console: Console) -> dict[str, Any]:
        if config.sweep.points or config.sweep.seeds:
            return _sweep(run, config, workdir, console)
        return run(config, workdir, console)

    return run_or_sweep


def _sweep(run: Run, config: ConfigDict, workdir: str, console: Console) -> dict[str, Any]:
    points = list(config.sweep.points) or [""]
    seeds = list(config.sweep.seeds) or [config.seed]
    for name, given in (("points", points), ("seeds", seeds)):
        if len(set(given)) != len(given):
            raise UserError(f"sweep.{name} are {tuple(given)}: name none of them twice")
    # All of them first: a mistake in the last point should not cost the runs before it.
    runs = {(p, s): at_point(config, p, s) for p in points for s in seeds}
    for one in runs.values():
        config_lib.check(one)
    if not processes.is_first():  # they take part in the selections, and write nothing
        for one in runs.values():
            run(one, workdir, console)
        return {}
    with open_workdir(workdir, config) as folder:
        return _run_all(run, runs, config, folder, console)


def _run_all(
    run: Run,
    runs: Mapping[tuple[str, int], ConfigDict],
    config: ConfigDict,
    folder: Path,
    console: Console,
) -> dict[str, Any]:
    """Runs what is not finished, then writes what all of them show together."""
    points, seeds = ([*dict.fromkeys(part)] for part in zip(*runs, strict=True))
    found: dict[str, list[dict[str, Any]]] = {point: [] for point in points}
    for number, ((point, seed), one) in enumerate(runs.items(), 1):
        console.rule(escape(f"{number} of {len(runs)}: {point or 'as configured'}, seed {seed}"))
        found[point].append(run(one, str(folder / _below(point, seed)), console))
    taken = [one["seconds"] for summaries in found.values() for one in summaries]
    summary = {
        "experiment": config.experiment,
        "dataset": found[points[0]][0]["dataset"],
        "seeds": seeds,
        "seconds": sum(taken),
        "points": {point: _gather(summaries) for point, summaries in found.items()},
    }
    _write(summary, runs, taken, folder, console)
    return summary


def _below(point: str, seed: int) -> str:
    """The folder of one run, below the sweep's and nowhere else.

    >>> _below("coreset_size=5 noise.rate=0.1", 0), _below("data.dir=/../x", 0)
    ('runs/coreset_size=5,noise.rate=0.1/seed=0', 'runs/data.dir=_.._x-4fde370f/seed=0')
    """
    name = point.replace(" ", ",") or "default"
    safe = "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)[:100]
    if safe != name:  # another point may look the same now
        safe += f"-{checksum(point)[:8]}"
    return f"runs/{safe}/seed={seed}"


def at_point(config: ConfigDict, point: str, seed: int) -> ConfigDict:
    """The config of one run: `point` is a list of KEY=VALUE, with spaces between.

    >>> config = at_point(config_lib.summarization(), "noise.kind=pairwise noise.rate=0.2", 3)
    >>> config.noise.kind, config.noise.rate, config.seed
    ('pairwise', 0.2, 3)
    """
    one = ConfigDict(config.to_dict())
    known = config_lib.flatten(one)
    changes = {}
    for key, value in parse_point(point).items():
        if key not in known:
            raise config_lib.unknown_key(key, config)
        wanted = type(known[key])
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not (tuple if wanted is list else wanted):
            raise UserError(f"sweep point {point!r}: {key} must be of type {wanted.__name__}")
        changes[key] = value
    one.update_from_flattened_dict(changes)
    one.seed = seed
    one.sweep.points, one.sweep.seeds = (), ()
    return one


def parse_point(point: str) -> dict[str, Any]:
    """`{key: value}` of a point; what is no Python literal is a string."""
    values = {}
    for part in point.split():
        key, equals, text = part.partition("=")
        if not (key and equals and text):
            raise UserError(f"sweep point {point!r}: write KEY=VALUE, with spaces between several")
        try:
            values[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[key] = text
    return values


def _gather(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each method and metric, its value with each seed, their mean and standard deviation."""
    methods: dict[str, dict[str, Any]] = {}
    for name, record in summaries[0]["methods"].items():
        of_method = [summary["methods"][name] for summary in summaries]
        methods[name] = {"seconds": float(np.mean([r["seconds"] for r in of_method]))}
        for metric in record:
            if metric in METRICS or metric.endswith("_accuracy"):
                values = [r[metric] for r in of_method]
                runs = [v["mean"] if isinstance(v, Mapping) else v for v in values]
                spread = {"mean": float(np.mean(runs)), "std": float(np.std(runs)), "runs": runs}
                methods[name][metric] = spread
    return {"methods": methods}


def _write(
    summary: dict[str, Any],
    runs: Mapping[tuple[str, int], ConfigDict],
    taken: Sequence[float],
    folder: Path,
    console: Console,
) -> None:
    """Writes what all runs show together: page, figures, table and summary.

    Args:
      summary: what goes into `summary.json`.
      runs: the config of each run by point and seed.
      taken: seconds of each run.
      folder: of the sweep.
      console: for the tables.
    """
    points = {point: found["methods"] for point, found in summary["points"].items()}
    metrics = list(dict.fromkeys(m for p in points.values() for r in p.values() for m in r))
    metrics.remove("seconds")
    tables: dict[str, Rows] = {}
    figures: list[Entry] = []
    for metric in metrics:
        title = METRICS.get(metric, metric.replace("_", " ") + ", %")
        tables[title] = sweep_table({_label(p, points): m for p, m in points.items()}, metric)
        for panel, (axis, values, curves) in _panels(points, metric).items():
            heading = f"{title.removesuffix(', %').capitalize()}{panel and ': ' + panel}"
            caption = f"Mean and standard deviation over {len(summary['seeds'])} seeds."
            figures.append((heading, caption, sweep_figure(axis, values, curves, title)))
    save_all(figures, folder / "figures")
    dataset = summary["dataset"]
    # A point may change any key: what the runs have is asked of the runs.
    sizes = dict.fromkeys(str(config_lib.size(config) or "as found") for config in runs.values())
    judges = dict.fromkeys(config.evaluation.model for config in runs.values())
    facts = [
        ("Data", f"{dataset['name']} ({dataset['source']})"),
        ("Test samples", dataset["num_test"]),
        ("Chosen per run", ", ".join(sizes)),
        ("Judged by", f"{', '.join(judges)}, last step"),
        ("Seeds", ", ".join(map(str, summary["seeds"]))),
        *origin(folder, summary["seconds"]),
    ]
    links = [Cell(_label(p, points), link=f"{_below(p, seed)}/report.html") for p, seed in runs]
    seconds = [Cell(f"{value:,.1f}") for value in taken]
    seeds = [seed for _, seed in runs]
    of_runs = column_table({"run": links, "seed": seeds, "seconds": seconds})
    entries: list[Entry] = [(t[0].upper() + t[1:], "", rows) for t, rows in tables.items()]
    entries += [*figures, ("Runs", "Each run has a page of its own.", of_runs)]
    banner = config_lib.banner(runs.values())
    write_report(folder / "report.html", f"Sweep: {dataset['name']}", facts, entries, banner)
    markdown = "\n".join(f"{t}\n\n{markdown_table(rows)}" for t, rows in tables.items())
    write_atomically(folder / "table.md", markdown)
    write_json(folder / "summary.json", summary)
    console.rule("All runs")
    for title, rows in tables.items():
        console.print(terminal_table(rows, f"{title}, mean ± std over seeds"))
    console.print(f"Report: {escape(str(folder))}/report.html", soft_wrap=True)


class Place(NamedTuple):
    """Where a point stands in tables and figures.

    A point's first number is its place on an axis, and what stands before it names the figure; what
    comes after it are settings that go with it. So `noise.kind=pairwise noise.rate=0.2` stands at
    rate 0.2 of the figure `kind=pairwise`.
    """

    panel: str
    axis: str
    value: Any
    label: str


def place(point: str) -> Place:
    """Where a point stands; without a number, by its name beside the others."""
    words = {key.split(".")[-1]: value for key, value in parse_point(point).items()}
    numbers = [key for key, value in words.items() if isinstance(value, int | float)]
    shown = list(words)[: list(words).index(numbers[0])] if numbers else list(words)
    panel = " ".join(f"{key}={words[key]}" for key in shown)
    if not numbers:
        return Place("", "", panel or "all", panel or "all")
    axis = numbers[0]
    return Place(panel, axis, words[axis], f"{panel} {axis}={words[axis]}".strip())


def _panels(
    points: Mapping[str, Any], metric: str
) -> dict[str, tuple[str, list[Any], dict[str, list[tuple[float, float]]]]]:
    """Figures: heading to (name of the axis, values along it, {method: [(mean, std), ...]})."""
    panels: dict[tuple[str, str], list[str]] = {}
    for point in points:
        panels.setdefault(place(point)[:2], []).append(point)
    found = {}
    for (panel, axis), members in panels.items():
        records = [points[point] for point in members]
        if not any(metric in one for record in records for one in record.values()):
            continue  # such as wrong labels where there is no noise
        methods = list(dict.fromkeys(name for record in records for name in record))
        curves = {
            name: [_spread(record.get(name, {}).get(metric), scale(metric)) for record in records]
            for name in methods
        }
        heading = panel or (axis if len(panels) > 1 else "")
        found[heading] = (axis, [place(point).value for point in members], curves)
    return found


def _label(point: str, points: Iterable[str]) -> str:
    """The point's name in a table; all of it where a shorter one would be another's too."""
    short = place(point).label
    return short if [place(p).label for p in points].count(short) == 1 else point


def _spread(value: Mapping[str, Any] | None, times: float) -> tuple[float, float]:
    return (np.nan, np.nan) if value is None else (times * value["mean"], times * value["std"])
