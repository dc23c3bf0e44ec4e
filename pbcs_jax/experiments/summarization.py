"""Data summarization: select a coreset by each method, judge each by a network trained on it."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from pbcs_jax import data, report
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import comparison
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.coreset_report import judged_by, write_coreset_report
from pbcs_jax.experiments.judge import make_judges
from pbcs_jax.experiments.workdir import read_metrics
from pbcs_jax.select import select_coreset

METHODS = ("pbcs", *BASELINES)


def run(config: ConfigDict, workdir: str, console: Console) -> dict[str, Any]:
    """Runs the experiment of `config` in `workdir`, from where an earlier run stopped.

    Returns:
      What is in `summary.json`.
    """
    load = partial(load_problem, config)
    experiment = partial(_run, config, console)
    return comparison.run_once(config, workdir, console, METHODS, load, experiment, "samples")


def load_problem(config: ConfigDict) -> data.Problem:
    """The data that `config` names, corrupted as it says."""
    problem = config_lib.load_problem(config)
    if config.coreset_size > len(problem.y):
        raise UserError(
            f"coreset_size is {config.coreset_size}: it must be at least 1 and at most "
            f"{len(problem.y)}, the number of candidates"
        )
    return problem


def _run(config: ConfigDict, console: Console, problem: data.Problem, folder: Path):
    _print_plan(config, problem, folder, console)
    key, _, judge_key = comparison.run_keys(config)
    given = config.evaluation
    # Baselines that train a network train the judge's, which favours them.
    model = config_lib.make_net(given.model, given.width, given.dropout, problem.num_classes)
    candidates = Candidates(problem.x, problem.y, problem.num_classes, model, problem.validation)
    records = comparison.compare(
        config,
        folder,
        console,
        make_judges(config, problem, judge_key),
        BASELINES,
        candidates,
        lambda: _select(config, problem, key, folder, console),
    )
    coresets = {name: [np.array(c) for c in r["coresets"]] for name, r in records.items()}
    corrupted = config.noise.kind != "none"
    extras = {name: _describe(drawn, problem, corrupted) for name, drawn in coresets.items()}
    summary = comparison.summarize(config, problem, records, len(problem.y), extras)
    write_coreset_report(config, problem, coresets, read_metrics(folder), summary, folder)
    return summary


def _select(config: ConfigDict, problem: data.Problem, key: jax.Array, folder: Path, console):
    """PBCS: the coreset, which goes into `coreset.npz` too."""
    n = len(problem.y)
    settings = config_lib.loop_settings(config, n)
    model = config.model

    def select(state, callback):
        return select_coreset(
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

    result = comparison.select_with_checkpoints(key, n, config, settings, folder, console, select)
    report.write_npz(
        folder / "coreset.npz",
        indices=result.indices,
        probabilities=result.probabilities,
        labels=problem.y[result.indices],
        rows=problem.indices[result.indices],
    )
    return result.indices


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


def _print_plan(config: ConfigDict, problem: data.Problem, folder: Path, console: Console) -> None:
    outer = config_lib.loop_settings(config, len(problem.y))
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
        f"[bold]Evaluation[/bold]  {comparison.judging(config)}\n"
        f"[bold]Devices[/bold]     {jax.device_count()} x {jax.devices()[0].device_kind}\n"
        f"[bold]Workdir[/bold]     {folder}",
        soft_wrap=True,
    )
