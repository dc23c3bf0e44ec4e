"""Feature selection: choose inputs by each method, judge each by a network that sees only those."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from pbcs_jax import data, report
from pbcs_jax.baselines.inputs import FEATURE_BASELINES, Inputs
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import comparison
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.features_report import write_features_report
from pbcs_jax.experiments.judge import make_feature_judges
from pbcs_jax.experiments.workdir import read_metrics
from pbcs_jax.features import select_features

METHODS = ("pbcs", *FEATURE_BASELINES)


def run(config: ConfigDict, workdir: str, console: Console) -> dict[str, Any]:
    """Runs the experiment of `config` in `workdir`, from where an earlier run stopped.

    Returns:
      What is in `summary.json`.
    """
    load = partial(_load, config)
    experiment = partial(_run, config, console)
    unit = "inputs" if config.inputs.patch == 1 else "patches"
    return comparison.run_once(config, workdir, console, METHODS, load, experiment, unit)


def patches(shape: tuple[int, ...], side: int) -> np.ndarray:
    """The number of the square patch that each input of a picture belongs to.

    >>> patches((4, 4), 2).tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    """
    if side == 1:
        return np.arange(np.prod(shape)).reshape(shape)
    if len(shape) < 2 or shape[0] % side or shape[1] % side:
        raise UserError(
            f"inputs.patch is {side}: a sample has shape {shape}, which does not divide into "
            "squares of that side; use 1, or a side that divides height and width"
        )
    rows, columns = np.arange(shape[0]) // side, np.arange(shape[1]) // side
    numbers = rows[:, None] * (shape[1] // side) + columns
    return np.broadcast_to(numbers.reshape(shape[:2] + (1,) * (len(shape) - 2)), shape)


def _load(config: ConfigDict) -> data.Problem:
    problem = config_lib.load_problem(config)
    count = int(patches(problem.x.shape[1:], config.inputs.patch).max()) + 1
    if config.coreset_size > count:
        raise UserError(
            f"coreset_size is {config.coreset_size}: it must be at least 1 and at most {count}, "
            "the number of inputs or patches"
        )
    return problem


def _run(config: ConfigDict, console: Console, problem: data.Problem, folder: Path):
    groups = patches(problem.x.shape[1:], config.inputs.patch)
    _print_plan(config, problem, groups, folder, console)
    key, _, judge_key = comparison.run_keys(config)
    inputs = Inputs(problem.x, problem.y, groups)
    records = comparison.compare(
        config,
        folder,
        console,
        make_feature_judges(config, problem, groups, judge_key),
        FEATURE_BASELINES,
        inputs,
        lambda: _select(config, problem, groups, key, folder, console),
    )
    chosen = {name: [np.array(c) for c in r["coresets"]] for name, r in records.items()}
    count = int(groups.max()) + 1
    summary = comparison.summarize(config, problem, records, count, {name: {} for name in chosen})
    write_features_report(config, problem, groups, chosen, read_metrics(folder), summary, folder)
    return summary


def _select(config, problem, groups, key: jax.Array, folder: Path, console) -> np.ndarray:
    """PBCS: the inputs, which go into `coreset.npz` too; their probabilities are kept over time."""
    n = int(groups.max()) + 1
    settings = config_lib.loop_settings(config, n)
    kernel, _ = config_lib.feature_kernel_settings(config)
    model = config.model
    maps = folder / "probabilities"

    def select(state, callback):
        return select_features(
            key,
            problem.x,
            problem.y,
            config_lib.make_net(model.name, model.width, model.dropout, problem.num_classes),
            config.coreset_size,
            problem.validation,
            groups=groups,
            smooth=config.inputs.smooth,
            objective=config.selection.objective,
            kernel=kernel,
            inner=config_lib.inner_settings(config),
            outer_loss=config.selection.outer_loss,
            outer_on=config.selection.outer_on,
            path_steps=config.selection.path_steps,
            mask_chunk=config.selection.mask_chunk,
            outer_chunk=config.selection.outer_chunk,
            state=state,
            callback=callback,
            callback_every=config.checkpoint_every,
            **{name: getattr(settings, name) for name in settings.__dataclass_fields__},
        )

    def watch(state):
        file = maps / f"{int(state.step):06d}.npz"
        report.write_npz(file, probabilities=np.asarray(state.probabilities))

    result = comparison.select_with_checkpoints(
        key, n, config, settings, folder, console, select, watch
    )
    report.write_npz(
        folder / "coreset.npz", indices=result.indices, probabilities=result.probabilities
    )
    return result.indices


def _print_plan(config, problem, groups, folder: Path, console: Console) -> None:
    outer = config_lib.loop_settings(config, 0)
    noise = f", noise {config.inputs.noise:g}" if config.inputs.noise else ""
    console.print(
        f"[bold]Data[/bold]        {problem.name} from {problem.source}: {len(problem.y)} samples "
        f"of {groups.size} inputs{noise}, {len(problem.y_test)} test\n"
        f"[bold]Selection[/bold]   {config.coreset_size} of {groups.max() + 1}, by "
        f"{config.selection.objective}, {outer.outer_steps} outer steps x {outer.num_masks} masks, "
        f"estimator {outer.estimator}\n"
        f"[bold]Evaluation[/bold]  {comparison.judging(config)}\n"
        f"[bold]Devices[/bold]     {jax.device_count()} x {jax.devices()[0].device_kind}\n"
        f"[bold]Workdir[/bold]     {folder}",
        soft_wrap=True,
    )
