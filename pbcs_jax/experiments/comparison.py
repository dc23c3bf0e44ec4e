"""What all experiments that compare methods share: each method chooses, judges say how well.

Everything is kept in the run's folder as it is found, so that a killed run goes on from there.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from pbcs_jax import report
from pbcs_jax.data import Problem
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.judge import Judge
from pbcs_jax.experiments.progress import progress_bar
from pbcs_jax.experiments.workdir import Checkpoints, MetricsLog, open_workdir
from pbcs_jax.outer import loop
from pbcs_jax.outer.settings import Settings

Callback = Callable[[loop.State, list[loop.Metrics]], None]


def run_once(
    config: ConfigDict,
    workdir: str,
    console: Console,
    known: tuple[str, ...],
    load: Callable[[], Problem],
    experiment: Callable[[Problem, Path], dict[str, Any]],
    unit: str,
) -> dict[str, Any]:
    """An experiment in its folder; a finished one is only shown again.

    Args:
      config: of the run.
      workdir: its folder.
      console: where the plan and the results go.
      known: the methods there are.
      load: the data.
      experiment: `(problem, folder) -> summary`, what is to go into `summary.json`.
      unit: what is chosen, such as 'samples'.

    Returns:
      What is in `summary.json`.
    """
    config_lib.check(config)
    for method in config.methods:
        if method not in known:
            raise UserError(f"method {method!r} is unknown: use one of {', '.join(known)}")
    problem = load()
    folder = open_workdir(workdir, config)
    summary_file = folder / "summary.json"
    if summary_file.exists():
        console.print(f"This run is finished: its results are in {folder}")
    else:
        summary = experiment(problem, folder)
        report.write_json(summary_file, summary)  # last: it says that all the rest is there
    summary = json.loads(summary_file.read_text())
    dataset, size = summary["dataset"], summary["coreset_size"]
    title = f"{dataset['name']} ({dataset['source']}): {size} of {summary['num_choices']} {unit}"
    console.print(report.terminal_table(report.method_table(summary["methods"]), title))
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True)
    return summary


def compare(
    config: ConfigDict,
    folder: Path,
    console: Console,
    judges: Mapping[str, Judge],
    baselines: Mapping[str, Callable[[jax.Array, Any, int], np.ndarray]],
    candidates: Any,
    pbcs: Callable[[], np.ndarray],
) -> dict[str, dict[str, Any]]:
    """Lets each method of `config.methods` choose, and the judges judge.

    Uniform draws differ so much that each of the judge's seeds gets its own; the others select
    once, as PBCS does.

    Args:
      judges: by the net's name, the main one first.
      baselines: by name, `(key, candidates, size) -> indices`.
      candidates: what they choose from.
      pbcs: chooses by the library's own method.

    Returns:
      By method `{seconds, judging_seconds, runs {net: [accuracy]}, coresets [[index]]}`.
    """
    _, baseline_key, _ = run_keys(config)
    records: dict[str, dict[str, Any]] = {}
    for name in config.methods:
        # A method that a killed run had finished is not repeated.
        file = folder / "methods" / f"{name}.json"
        if not file.exists():
            draws = config.evaluation.num_seeds if name == "uniform" else 1
            began = time.monotonic()
            if name == "pbcs":
                coresets = [pbcs()]
            else:
                key = jax.random.fold_in(baseline_key, list(baselines).index(name))
                with console.status(f"Selecting by {name}"):
                    keys = jax.random.split(key, draws)
                    coresets = [baselines[name](k, candidates, config.coreset_size) for k in keys]
            seconds = (time.monotonic() - began) / draws
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
    return records


def judging(config: ConfigDict) -> str:
    """How the methods are judged, in one line of the plan."""
    judge = config.evaluation
    length = f"{judge.epochs} epochs" if judge.epochs else f"{judge.steps} steps"
    return (
        f"{judge.model}, {length}, {judge.num_seeds} seeds, last step's accuracy; "
        f"methods {', '.join(config.methods)}"
    )


def run_keys(config: ConfigDict) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The PRNG keys of a run: PBCS's, the baselines', the judges'."""
    first, second, third = jax.random.split(jax.random.key(config.seed), 3)
    return first, second, third


def select_with_checkpoints(
    key: jax.Array,
    n: int,
    config: ConfigDict,
    settings: Settings,
    folder: Path,
    console: Console,
    select: Callable[[loop.State | None, Callback], loop.Result],
    watch: Callable[[loop.State], None] = lambda state: None,
) -> loop.Result:
    """PBCS with a progress bar, metrics and checkpoints, from where a killed run stopped.

    Args:
      key: of the selection.
      n: candidates.
      config: of the run.
      settings: of the outer loop.
      folder: the run's.
      select: `(state, callback) -> Result`, to be called back every `config.checkpoint_every`.
      watch: sees the state as often as that.
    """
    checkpoints = Checkpoints(folder)
    state = checkpoints.restore(loop.init(key, n, config.coreset_size, settings))
    log = MetricsLog(folder, last_step=0 if state is None else int(state.step))
    with progress_bar(console) as progress:
        task = progress.add_task("Selecting", total=settings.outer_steps, info="compiling")
        progress.update(task, completed=len(log.records))

        def callback(state, metrics):
            log.append(metrics)
            checkpoints.save(state)
            watch(state)
            last = metrics[-1]
            info = f"outer loss {last['outer_loss']:.3f}, accuracy {last['outer_accuracy']:.1%}"
            progress.update(task, completed=int(state.step), info=info)

        try:
            return select(state, callback)
        finally:
            checkpoints.close()
            log.close()


def summarize(
    config: ConfigDict,
    problem: Problem,
    records: Mapping[str, Mapping[str, Any]],
    num_choices: int,
    extras: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What goes into `summary.json`; `extras` are a method's own columns."""
    methods = {
        name: _accuracies(record["runs"]) | {"seconds": record["seconds"]} | dict(extras[name])
        for name, record in records.items()
    }
    return {
        "experiment": config.experiment,
        "dataset": {
            "name": problem.name,
            "source": problem.source,
            "num_train": len(problem.y),
            "num_test": len(problem.y_test),
        },
        "coreset_size": config.coreset_size,
        "num_choices": num_choices,
        "seed": config.seed,
        "seconds": sum(r["seconds"] + r["judging_seconds"] for r in records.values()),
        "methods": methods,
    }


def _judge(judges: Mapping[str, Judge], coresets: list[np.ndarray], name: str, console, num_seeds):
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


def _accuracies(runs: Mapping[str, list[float]]) -> dict[str, Any]:
    """`test_accuracy` by the first net, and one entry more for each net of the transfer."""
    names = ["test_accuracy"] + [f"{net}_accuracy" for net in list(runs)[1:]]
    return {
        name: {"mean": np.mean(values), "std": np.std(values), "runs": values}
        for name, values in zip(names, runs.values(), strict=True)
    }
