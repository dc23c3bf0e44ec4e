"""Data summarization: select a coreset by each method, judge each by a network trained on it."""

import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from pbcs_jax import data, report, selection
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.coreset import select_coreset
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.coreset_report import judged_by, write_coreset_report
from pbcs_jax.experiments.judge import Judge, make_judges
from pbcs_jax.experiments.progress import progress_bar
from pbcs_jax.experiments.workdir import Checkpoints, MetricsLog, open_workdir, read_metrics

METHODS = ("pbcs", *BASELINES)


def run(config: ConfigDict, workdir: str, console: Console) -> dict[str, Any]:
    """Runs the experiment of `config` in `workdir`, from where an earlier run stopped.

    Returns:
      What is in `summary.json`.
    """
    config_lib.check(config)
    for method in config.methods:
        if method not in METHODS:
            raise UserError(f"method {method!r} is unknown: use one of {', '.join(METHODS)}")
    problem = load_problem(config)
    folder = open_workdir(workdir, config)
    summary_file = folder / "summary.json"
    if summary_file.exists():
        summary = json.loads(summary_file.read_text())
        console.print(f"This run is finished: its results are in {folder}")
    else:
        _print_plan(config, problem, folder, console)
        summary = _run(config, problem, folder, console)
    console.print(report.terminal_table(report.method_table(summary["methods"]), _title(summary)))
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True)
    return summary


def load_problem(config: ConfigDict) -> data.Problem:
    """The data that `config` names, corrupted as it says."""
    source = config.data
    dataset = data.load(source.source, name=source.name, path=source.path, dir=source.dir)
    problem = data.make_problem(
        dataset,
        seed=config.seed,
        num_candidates=source.num_candidates,
        num_validation=source.num_validation,
        noise_kind=config.noise.kind,
        noise_rate=config.noise.rate,
        imbalance_factor=config.imbalance.factor,
    )
    if config.coreset_size > len(problem.y):
        raise UserError(
            f"coreset_size is {config.coreset_size}: it must be at least 1 and at most "
            f"{len(problem.y)}, the number of candidates"
        )
    return problem


def _run(config: ConfigDict, problem: data.Problem, folder: Path, console: Console):
    selection_key, baseline_key, judge_key = jax.random.split(jax.random.key(config.seed), 3)
    judges = make_judges(config, problem, judge_key)
    records: dict[str, dict[str, Any]] = {}
    for name in config.methods:
        # A method that a killed run had finished is not repeated.
        file = folder / "methods" / f"{name}.json"
        if not file.exists():
            if name == "pbcs":
                coresets, seconds = _select(config, problem, selection_key, folder, console)
            else:
                coresets, seconds = _baseline(config, problem, baseline_key, name, console)
            began = time.monotonic()
            runs = _judge(judges, coresets, name, console, config.evaluation.num_seeds)
            record = {
                "seconds": seconds,
                "judging_seconds": time.monotonic() - began,
                "runs": runs,
                "coresets": [coreset.tolist() for coreset in coresets],
            }
            report.write_json(file, record)
        records[name] = json.loads(file.read_text())
    coresets = {name: [np.array(c) for c in r["coresets"]] for name, r in records.items()}
    methods = {
        name: _accuracies(record["runs"])
        | {"seconds": record["seconds"]}
        | _describe(coresets[name], problem, corrupted=config.noise.kind != "none")
        for name, record in records.items()
    }
    summary = {
        "experiment": config.experiment,
        "dataset": {
            "name": problem.name,
            "source": problem.source,
            "num_train": len(problem.y),
            "num_test": len(problem.y_test),
        },
        "coreset_size": config.coreset_size,
        "seed": config.seed,
        "seconds": sum(r["seconds"] + r["judging_seconds"] for r in records.values()),
        "methods": methods,
    }
    write_coreset_report(config, problem, coresets, read_metrics(folder), summary, folder)
    report.write_json(folder / "summary.json", summary)  # last: it says that all the rest is there
    return json.loads((folder / "summary.json").read_text())


def _baseline(config: ConfigDict, problem: data.Problem, key: jax.Array, name: str, console):
    """The coresets of a baseline, and the seconds of one.

    Uniform draws differ so much that each of the judge's seeds gets its own; the others select
    once, as PBCS does. Those that train a network train the judge's, which favours them.
    """
    draws = config.evaluation.num_seeds if name == "uniform" else 1
    given = config.evaluation
    model = config_lib.make_net(given.model, given.width, given.dropout, problem.num_classes)
    candidates = Candidates(problem.x, problem.y, problem.num_classes, model, problem.validation)
    key = jax.random.fold_in(key, list(BASELINES).index(name))
    began = time.monotonic()
    with console.status(f"Selecting by {name}"):
        coresets = [
            BASELINES[name](k, candidates, config.coreset_size)
            for k in jax.random.split(key, draws)
        ]
    return coresets, (time.monotonic() - began) / draws


def _judge(judges: dict[str, Judge], coresets: list[np.ndarray], name: str, console, num_seeds):
    """Accuracies by the judge's net, one a seed."""
    drawn = coresets if len(coresets) > 1 else coresets * num_seeds
    runs: dict[str, list[float]] = {net: [] for net in judges}
    with progress_bar(console) as progress:
        task = progress.add_task("Judging", total=len(drawn) * len(judges), info=name)
        for net, judge in judges.items():
            for accuracies in judge(drawn):
                runs[net] += accuracies
                info = f"{name} {runs[net][-1]:.1%} ({net})"
                progress.update(task, advance=len(accuracies), info=info)
    return runs


def _accuracies(runs: dict[str, list[float]]) -> dict[str, Any]:
    """`test_accuracy` by the first net, and one entry more for each net of the transfer."""
    names = ["test_accuracy"] + [f"{net}_accuracy" for net in list(runs)[1:]]
    return {
        name: {"mean": np.mean(values), "std": np.std(values), "runs": values}
        for name, values in zip(names, runs.values(), strict=True)
    }


def _select(config: ConfigDict, problem: data.Problem, key: jax.Array, folder: Path, console):
    """PBCS, with checkpoints: the coreset, alone in a list, and the seconds that it took."""
    n = len(problem.y)
    settings = config_lib.loop_settings(config, n)
    checkpoints = Checkpoints(folder)
    state = checkpoints.restore(selection.init(key, n, config.coreset_size, settings))
    log = MetricsLog(folder, last_step=0 if state is None else int(state.step))
    model = config.model
    began = time.monotonic()
    with progress_bar(console) as progress:
        task = progress.add_task("Selecting", total=settings.outer_steps, info="compiling")
        progress.update(task, completed=len(log.records))

        def callback(state, metrics):
            log.append(metrics)
            checkpoints.save(state)
            last = metrics[-1]
            info = f"outer loss {last['outer_loss']:.3f}, accuracy {last['outer_accuracy']:.1%}"
            progress.update(task, completed=int(state.step), info=info)

        try:
            result = select_coreset(
                key,
                problem.x,
                problem.y,
                config_lib.make_net(model.name, model.width, model.dropout, problem.num_classes),
                config.coreset_size,
                problem.validation,
                objective=config.selection.objective,
                max_ratio=config.selection.max_ratio,
                kernel=config_lib.kernel_settings(config, n),
                inner=config_lib.inner_settings(config),
                outer_loss=config.selection.outer_loss,
                outer_batch=config.selection.outer_batch,
                path_steps=config.selection.path_steps,
                mask_chunk=config.selection.mask_chunk,
                outer_chunk=config.selection.outer_chunk,
                state=state,
                callback=callback,
                callback_every=config.checkpoint_every,
                **{name: getattr(settings, name) for name in settings.__dataclass_fields__},
            )
        finally:
            checkpoints.close()
            log.close()
    seconds = time.monotonic() - began
    report.write_npz(
        folder / "coreset.npz",
        indices=result.indices,
        probabilities=result.probabilities,
        labels=problem.y[result.indices],
        rows=problem.indices[result.indices],
    )
    return [result.indices], seconds


def _describe(coresets: list[np.ndarray], problem: data.Problem, corrupted: bool) -> dict[str, Any]:
    """Means over the draws: size, wrong labels, largest over smallest class."""
    counts = [np.bincount(problem.y_true[c], minlength=problem.num_classes) for c in coresets]
    described: dict[str, Any] = {"coreset_size": float(np.mean([len(c) for c in coresets]))}
    if corrupted:
        wrong = [np.mean(problem.y[c] != problem.y_true[c]) for c in coresets]
        described["wrong_labels"] = float(np.mean(wrong))
    described["largest_class"] = float(np.mean([c.max() for c in counts]))
    described["smallest_class"] = float(np.mean([c.min() for c in counts]))
    return described


def _title(summary: dict[str, Any]) -> str:
    dataset = summary["dataset"]
    return (
        f"{dataset['name']} ({dataset['source']}): {summary['coreset_size']} of "
        f"{dataset['num_train']} samples"
    )


def _print_plan(config: ConfigDict, problem: data.Problem, folder: Path, console: Console) -> None:
    outer, judge = config_lib.loop_settings(config, len(problem.y)), config.evaluation
    is_network = config.selection.objective != "kernel"
    network = f" x {config.inner.steps} inner steps" if is_network else ""
    console.print(
        f"[bold]Data[/bold]        {problem.name} from {problem.source}: "
        f"{len(problem.y)} candidates ({np.mean(problem.y != problem.y_true):.0%} wrong labels), "
        f"{0 if problem.y_val is None else len(problem.y_val)} validation, "
        f"{len(problem.y_test)} test\n"
        f"[bold]Selection[/bold]   {config.coreset_size} samples, {judged_by(config)}, "
        f"{outer.outer_steps} outer steps x {outer.num_masks} masks"
        f"{network}, estimator {outer.estimator}\n"
        f"[bold]Evaluation[/bold]  {judge.model}, {judge.steps} steps, {judge.num_seeds} seeds, "
        f"last step's accuracy; methods {', '.join(config.methods)}\n"
        f"[bold]Devices[/bold]     {jax.device_count()} x {jax.devices()[0].device_kind}\n"
        f"[bold]Workdir[/bold]     {folder}",
        soft_wrap=True,
    )
