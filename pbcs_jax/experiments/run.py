"""One run of an experiment, in a straight line: check, load, open, choose, judge, record, page.

Everything is kept in the run's folder as it is found, so that an interrupted run continues there.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console
from rich.markup import escape

from pbcs_jax import processes, progress
from pbcs_jax.data import Problem
from pbcs_jax.errors import UserError, check_known
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments import selection
from pbcs_jax.experiments.judge import Judge, make_judges
from pbcs_jax.experiments.metrics import NAME as METRICS
from pbcs_jax.experiments.metrics import read_metrics
from pbcs_jax.experiments.records import Record, Records
from pbcs_jax.experiments.task import Experiment, Task
from pbcs_jax.experiments.workdir import (
    absolute,
    finished,
    identity,
    open_workdir,
    origin,
    write_summary,
)
from pbcs_jax.report.figures import accuracy_by_method
from pbcs_jax.report.files import read_record
from pbcs_jax.report.page import Entry, Fact, save_all, write_report
from pbcs_jax.report.selection import progress_entries
from pbcs_jax.report.tables import Cell, method_table, terminal_table


def run(experiment: Experiment, config: ConfigDict, workdir: str, console: Console):
    """Runs the experiment of `config` in `workdir`, from where an earlier run stopped.

    Returns:
      What is in `summary.json`.
    """
    config_lib.check(config)
    for method in config.methods:
        check_known("method", method, experiment.methods)
    if not processes.is_first():
        selection.take_part(experiment, config)
        return {}
    unit = experiment.unit(config)
    summary = finished(workdir, config)
    if summary is None:
        problem = config_lib.load_problem(config)
        task = experiment.task(config, problem)
        size = config_lib.size(config)
        if size > task.n:
            raise UserError(
                f"{config_lib.size_key(config)} is {size}: it must be at least 1 and at most "
                f"{task.n}, the number of {unit} to choose from"
            )
        with open_workdir(workdir, config, problem.fingerprint) as folder:
            _print_plan(config, problem, task, folder, console)
            records = _choose_and_judge(config, problem, task, folder, console)
            summary = _summarize(config, problem, task, records)
            _write_page(config, problem, task, unit, records, summary, folder)
            write_summary(folder, summary)  # last: it stands for all the rest
            summary = read_record(folder / "summary.json")
    else:
        selection.invite(False)
        shown = escape(str(absolute(workdir)))
        console.print(f"This run is finished: its results are in {shown}", soft_wrap=True)
    dataset = summary["dataset"]
    size = summary[config_lib.size_key(config)]
    title = f"{dataset['name']} ({dataset['source']}): {size} of {summary['num_choices']} {unit}"
    console.print(terminal_table(method_table(summary["methods"]), title))
    console.print(f"Report: {escape(str(absolute(workdir)))}/report.html", soft_wrap=True)
    return summary


def _choose_and_judge(
    config: ConfigDict, problem: Problem, task: Task, folder: Path, console: Console
) -> dict[str, Record]:
    """Lets each method of `config.methods` choose, and the judges judge.

    What an interrupted run had found is not repeated: methods that were judged, coresets that were
    chosen, and networks that have judged them.
    """
    pbcs_key, baseline_key, judge_key = config_lib.keys(config)
    judges = make_judges(config, problem, task, judge_key)
    num_seeds = config.evaluation.num_seeds
    records = Records(folder, identity(folder), task.n, list(judges), num_seeds)
    found: dict[str, Record] = {}
    selection.invite("pbcs" in config.methods and not records.has("pbcs"))
    for name in config.methods:
        record = records.read(name)
        if record is None or not records.is_whole(record):
            if task.play is not None:
                # One key for all methods: their networks meet the same random numbers.
                fresh = records.begin(0.0, []) | task.play(name, judge_key, folder)
            elif name == "pbcs":
                fresh = _choose_by_pbcs(pbcs_key, config, task, records)
            else:
                size = _size(config, found)
                fresh = _choose_by_baseline(baseline_key, name, size, task, records)
            if task.play is None:
                console.print(f"{name}: selected in {fresh['seconds']:.1f} s", highlight=False)
            if record is not None and record["coresets"] == fresh["coresets"]:
                fresh |= {key: record[key] for key in ("runs", "judging_seconds", "seconds")}
            record = fresh
            records.write(name, record)
        if not records.is_judged(record):
            _judge(judges, name, record, records)
        records.clear(name)
        found[name] = record
    return found


def _choose_by_pbcs(key: jax.Array, config: ConfigDict, task: Task, records: Records) -> Record:
    """The record of the library's own selection, which leaves files of its own."""
    began = time.monotonic()
    result = selection.select(key, config, task, records.folder)
    seconds = time.monotonic() - began
    with progress.shown():  # suspects are looked for here, which is no part of the selection
        progress.stage("Looking for wrong labels")
        selection.keep(result, task, records.folder)
    files = [name for name in (METRICS, selection.CHOICE) if (records.folder / name).exists()]
    return records.begin(seconds, [result.indices], "coreset.npz", *files)


def _choose_by_baseline(
    key: jax.Array, name: str, size: int, task: Task, records: Records
) -> Record:
    """The record of a baseline.

    Uniform draws differ so much that each of the judge's seeds gets its own; the others select
    once, as PBCS does.
    """
    draws = records.num_seeds if name == "uniform" else 1
    began = time.monotonic()
    key = jax.random.fold_in(key, list(task.baselines).index(name))
    choose = task.baselines[name]
    with progress.shown():
        progress.stage(f"Selecting by {name}")
        coresets = [choose(k, task.candidates, size) for k in jax.random.split(key, draws)]
    return records.begin((time.monotonic() - began) / draws, coresets)


def _size(config: ConfigDict, found: Mapping[str, Mapping[str, Any]]) -> int:
    """K, or what PBCS, which then comes first, found to be enough."""
    return config_lib.size(config) or len(found["pbcs"]["coresets"][0])


def _judge(judges: Mapping[str, Judge], name: str, record: Record, records: Records) -> None:
    """Adds the accuracies by the judge's net, one per seed, and keeps each as it is found."""
    coresets = [np.array(coreset) for coreset in record["coresets"]]
    drawn = coresets if len(coresets) > 1 else coresets * records.num_seeds
    runs, total = record["runs"], records.num_seeds * len(judges)
    last = time.monotonic()
    with progress.shown(), progress.steps(f"Judging {name}", total) as show:
        for net, judge in judges.items():
            kept = records.halfway(name, net, record)
            for accuracies in judge(drawn, len(runs[net]), kept):
                runs[net] += accuracies
                now = time.monotonic()
                record["judging_seconds"] += now - last
                last = now
                records.write(name, record)
                text = f"{accuracies[-1]:.1%} ({net})"
                show(sum(map(len, runs.values())), lambda text=text: text)


def _summarize(
    config: ConfigDict, problem: Problem, task: Task, records: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What goes into `summary.json`."""
    methods = {}
    for name, record in records.items():
        draws = [np.array(coreset) for coreset in record["coresets"]]
        methods[name] = _accuracies(record["runs"]) | {"seconds": record["seconds"]}
        methods[name] |= task.columns(draws) | record.get("columns", {})
    return {
        "experiment": config.experiment,
        "dataset": {
            "name": problem.name,
            "source": problem.source,
            "num_train": len(problem.y),
            "num_test": len(problem.y_test),
        },
        config_lib.size_key(config): _size(config, records),
        "num_choices": task.n,
        "seed": config.seed,
        "seconds": sum(r["seconds"] + r["judging_seconds"] for r in records.values()),
        "methods": methods,
    }


def _accuracies(runs: Mapping[str, list[float]]) -> dict[str, Any]:
    """`test_accuracy` by the first net, and one entry more for each net of the transfer."""
    names = ["test_accuracy"] + [f"{net}_accuracy" for net in list(runs)[1:]]
    return {
        name: {"mean": np.mean(values), "std": np.std(values), "runs": values}
        for name, values in zip(names, runs.values(), strict=True)
    }


def _write_page(
    config: ConfigDict,
    problem: Problem,
    task: Task,
    unit: str,
    records: Mapping[str, Mapping[str, Any]],
    summary: dict[str, Any],
    folder: Path,
) -> None:
    """Writes `report.html` and the figures of the run."""
    chosen = {name: [np.array(c) for c in r["coresets"]] for name, r in records.items()}
    caption = f"Test accuracy of a fresh {config.evaluation.model} trained on the chosen "
    caption += f"{unit} only, last step."
    caption = task.caption or caption
    entries: list[Entry] = [
        ("Methods", "", method_table(summary["methods"])),
        ("Accuracy by method", caption, accuracy_by_method(summary["methods"])),
    ]
    history = read_metrics(folder)
    losses, histograms = ([step[k] for step in history] for k in ("outer_loss", "histogram"))
    entries += progress_entries(losses, histograms, unit)
    entries += task.entries(chosen, folder)
    save_all(entries, folder / "figures")
    # The bound on classes may choose fewer than were asked for.
    size = len(chosen["pbcs"][0]) if "pbcs" in chosen else config_lib.size(config)
    facts: list[Fact] = [
        ("Data", f"{problem.name} ({problem.source})"),
        *task.facts,
        ("Chosen", f"{size} of {task.n} {unit}"),
        ("Judged by", f"{config.evaluation.model}, {config.evaluation.num_seeds} seeds"),
        ("Seed", config.seed),
    ]
    if "pbcs" in chosen and task.play is None:
        facts += [
            ("The indices", Cell("coreset.npz", link="coreset.npz")),
            ("Every outer step", Cell("metrics.jsonl", link="metrics.jsonl")),
        ]
    facts += origin(folder, summary["seconds"])
    what = "Coreset" if unit == "samples" else "Inputs"
    title, banner = task.title or f"{what} of {problem.name}", config_lib.banner([config])
    write_report(folder / "report.html", title, facts, entries, banner)


def _print_plan(
    config: ConfigDict, problem: Problem, task: Task, folder: Path, console: Console
) -> None:
    data, choice = task.plan
    judge = config.evaluation
    length = f"{judge.epochs} epochs" if judge.epochs else f"{judge.steps} steps"
    console.print(
        f"[bold]Data[/bold]        {escape(problem.name)} from {problem.source}: {data}, "
        f"{len(problem.y_test)} test\n"
        f"[bold]Selection[/bold]   {choice}\n"
        f"[bold]Evaluation[/bold]  {judge.model}, {length}, {judge.num_seeds} seeds, last step's "
        f"accuracy; methods {', '.join(config.methods)}\n"
        f"[bold]Devices[/bold]     {jax.device_count()} x {jax.devices()[0].device_kind}\n"
        f"[bold]Workdir[/bold]     {escape(str(folder))}",
        soft_wrap=True,
    )
