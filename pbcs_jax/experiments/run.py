"""One run of an experiment, in a straight line: check, load, open, choose, judge, record, page.

Everything is kept in the run's folder as it is found, so that an interrupted run continues there.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from pbcs_jax import progress
from pbcs_jax.data import Problem
from pbcs_jax.errors import UserError, check_known
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments import selection
from pbcs_jax.experiments.judge import Judge, make_judges
from pbcs_jax.experiments.task import Experiment, Task
from pbcs_jax.experiments.workdir import open_workdir, origin, read_metrics
from pbcs_jax.report.figures import accuracy_by_method
from pbcs_jax.report.files import write_json
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
    size, unit = config_lib.size(config), experiment.unit(config)
    summary_file = Path(workdir).expanduser() / "summary.json"
    if summary_file.exists():
        folder = open_workdir(workdir, config)
        console.print(f"This run is finished: its results are in {folder}")
    else:
        problem = config_lib.load_problem(config)
        task = experiment.task(config, problem)
        if size > task.n:
            raise UserError(
                f"{config_lib.size_key(config)} is {size}: it must be at least 1 and at most "
                f"{task.n}, the number of {unit} to choose from"
            )
        folder = open_workdir(workdir, config)
        _print_plan(config, problem, task, folder, console)
        records = _choose_and_judge(config, problem, task, folder, console)
        summary = _summarize(config, problem, task, records)
        _write_page(config, problem, task, unit, records, summary, folder)
        write_json(summary_file, summary)  # last: it stands for all the rest
    summary = json.loads(summary_file.read_text())
    dataset = summary["dataset"]
    title = f"{dataset['name']} ({dataset['source']}): {size} of {summary['num_choices']} {unit}"
    console.print(terminal_table(method_table(summary["methods"]), title))
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True)
    return summary


def _choose_and_judge(
    config: ConfigDict, problem: Problem, task: Task, folder: Path, console: Console
) -> dict[str, dict[str, Any]]:
    """Lets each method of `config.methods` choose, and the judges judge.

    Uniform draws differ so much that each of the judge's seeds gets its own; the others select
    once, as PBCS does.

    Returns:
      By method `{seconds, judging_seconds, runs {net: [accuracy]}, coresets [[index]]}`.
    """
    pbcs_key, baseline_key, judge_key = jax.random.split(jax.random.key(config.seed), 3)
    judges = make_judges(config, problem, task, judge_key)
    records: dict[str, dict[str, Any]] = {}
    for name in config.methods:
        # A method that an interrupted run had finished is not repeated.
        file = folder / "methods" / f"{name}.json"
        if not file.exists() and task.play is not None:
            # One key for all methods: their networks meet the same random numbers.
            write_json(file, task.play(name, judge_key, folder))
        elif not file.exists():
            draws = config.evaluation.num_seeds if name == "uniform" else 1
            began = time.monotonic()
            if name == "pbcs":
                result = selection.select(pbcs_key, config, task, folder)
                coresets = [result.indices]
            else:
                key = jax.random.fold_in(baseline_key, list(task.baselines).index(name))
                choose, size = task.baselines[name], config_lib.size(config)
                with progress.shown():
                    progress.stage(f"Selecting by {name}")
                    keys = jax.random.split(key, draws)
                    coresets = [choose(k, task.candidates, size) for k in keys]
            seconds = (time.monotonic() - began) / draws
            if name == "pbcs":  # suspects are looked for here, which is no part of the selection
                with progress.shown():
                    progress.stage("Looking for wrong labels")
                    selection.keep(result, task, folder)
            began = time.monotonic()
            console.print(f"{name}: selected in {seconds:.1f} s", highlight=False)
            runs = _judge(judges, coresets, name, config.evaluation.num_seeds)
            record = {
                "seconds": seconds,
                "judging_seconds": time.monotonic() - began,
                "runs": runs,
                "coresets": [coreset.tolist() for coreset in coresets],
            }
            write_json(file, record)
        records[name] = json.loads(file.read_text())
    return records


def _judge(judges: Mapping[str, Judge], coresets: list[np.ndarray], name: str, num_seeds: int):
    """Accuracies by the judge's net, one per seed."""
    drawn = coresets if len(coresets) > 1 else coresets * num_seeds
    runs: dict[str, list[float]] = {net: [] for net in judges}
    total = len(drawn) * len(judges)
    with progress.shown(), progress.steps(f"Judging {name}", total) as show:
        for net, judge in judges.items():
            for accuracies in judge(drawn):
                runs[net] += accuracies
                text = f"{accuracies[-1]:.1%} ({net})"
                show(sum(map(len, runs.values())), lambda text=text: text)
    return runs


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
        config_lib.size_key(config): config_lib.size(config),
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
        f"[bold]Data[/bold]        {problem.name} from {problem.source}: {data}, "
        f"{len(problem.y_test)} test\n"
        f"[bold]Selection[/bold]   {choice}\n"
        f"[bold]Evaluation[/bold]  {judge.model}, {length}, {judge.num_seeds} seeds, last step's "
        f"accuracy; methods {', '.join(config.methods)}\n"
        f"[bold]Devices[/bold]     {jax.device_count()} x {jax.devices()[0].device_kind}\n"
        f"[bold]Workdir[/bold]     {folder}",
        soft_wrap=True,
    )
