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
from pbcs_jax.experiments.judge import Judge
from pbcs_jax.experiments.progress import progress_bar
from pbcs_jax.experiments.workdir import Checkpoints, MetricsLog, open_workdir

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
    console.print(report.terminal_table(summary["methods"], _title(summary)))
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
    began = time.monotonic()
    selection_key, baseline_key, judge_key = jax.random.split(jax.random.key(config.seed), 3)
    # The judge's key does not depend on the method: all start from the same weights.
    judge = Judge(config, problem, judge_key)
    coresets: dict[str, list[np.ndarray]] = {}
    methods: dict[str, dict[str, Any]] = {}
    given = config.model
    net = config_lib.make_net(given.name, given.width, given.dropout, problem.num_classes)
    held_out: Any = None if problem.x_val is None else (problem.x_val, problem.y_val)
    candidates = Candidates(problem.x, problem.y, problem.num_classes, net, held_out)
    num_seeds = config.evaluation.num_seeds
    history: list[dict[str, Any]] = []
    for number, name in enumerate(config.methods):
        begin = time.monotonic()
        if name == "pbcs":
            result, history, seconds = _select(config, problem, selection_key, folder, console)
            coresets[name] = [result.indices] * num_seeds
        else:
            # A random method is judged by as many different draws as there are evaluation seeds.
            keys = jax.random.split(jax.random.fold_in(baseline_key, number), num_seeds)
            select = BASELINES[name]
            coresets[name] = [select(k, candidates, config.coreset_size) for k in keys]
            seconds = (time.monotonic() - begin) / num_seeds
        methods[name] = {"seconds": seconds}
    with progress_bar(console) as progress:
        task = progress.add_task("Judging", total=num_seeds * len(methods), info="")
        for name, drawn in coresets.items():
            runs = []
            for accuracies in judge(drawn):
                runs += accuracies
                progress.update(task, advance=len(accuracies), info=f"{name} {runs[-1]:.1%}")
            accuracy = {"mean": np.mean(runs), "std": np.std(runs), "runs": runs}
            methods[name] = {
                "test_accuracy": accuracy,
                **methods[name],
                **_describe(drawn, problem, corrupted=config.noise.kind != "none"),
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
        "seconds": time.monotonic() - began,
        "methods": methods,
    }
    _write_report(config, problem, coresets, history, summary, folder)
    report.write_json(folder / "summary.json", summary)  # last: it says that all the rest is there
    return json.loads((folder / "summary.json").read_text())


def _select(config: ConfigDict, problem: data.Problem, key: jax.Array, folder: Path, console):
    """PBCS, with checkpoints: the result, the metrics of all steps, and the seconds it took."""
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
                None if problem.x_val is None else (problem.x_val, problem.y_val),
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
    return result, log.records, seconds


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


def _judged_by(config: ConfigDict) -> str:
    """What judges a mask during the selection."""
    kernel = f"kernel on {config.kernel.features} features"
    names = {"network": config.model.name, "kernel": kernel}
    names["kernel_then_network"] = f"{kernel}, then {config.model.name}"
    return names[config.selection.objective]


def _print_plan(config: ConfigDict, problem: data.Problem, folder: Path, console: Console) -> None:
    outer, judge = config_lib.loop_settings(config, len(problem.y)), config.evaluation
    is_network = config.selection.objective != "kernel"
    network = f" x {config.inner.steps} inner steps" if is_network else ""
    console.print(
        f"[bold]Data[/bold]        {problem.name} from {problem.source}: "
        f"{len(problem.y)} candidates ({np.mean(problem.y != problem.y_true):.0%} wrong labels), "
        f"{0 if problem.y_val is None else len(problem.y_val)} validation, "
        f"{len(problem.y_test)} test\n"
        f"[bold]Selection[/bold]   {config.coreset_size} samples, {_judged_by(config)}, "
        f"{outer.outer_steps} outer steps x {outer.num_masks} masks"
        f"{network}, estimator {outer.estimator}\n"
        f"[bold]Evaluation[/bold]  {judge.model}, {judge.steps} steps, {judge.num_seeds} seeds, "
        f"last step's accuracy; methods {', '.join(config.methods)}\n"
        f"[bold]Devices[/bold]     {jax.device_count()} x {jax.devices()[0].device_kind}\n"
        f"[bold]Workdir[/bold]     {folder}",
        soft_wrap=True,
    )


def _write_report(
    config: ConfigDict,
    problem: data.Problem,
    coresets: dict[str, list[np.ndarray]],
    history: list[dict[str, Any]],
    summary: dict[str, Any],
    folder: Path,
) -> None:
    figures = [
        (
            "Accuracy by method",
            f"Test accuracy of a fresh {config.evaluation.model} trained on each coreset, "
            "last step.",
            report.accuracy_by_method(summary["methods"]),
        )
    ]
    if history:
        steps = [record["step"] for record in history]
        histograms = np.array([record["histogram"] for record in history])
        edges = np.linspace(0, 1, histograms.shape[1] + 1)
        figures += [
            (
                "Outer loss",
                "Mean over the masks of each outer step.",
                report.outer_loss(steps, [record["outer_loss"] for record in history]),
            ),
            (
                "Probabilities",
                "How many candidates have which probability, over time.",
                report.probability_evolution(steps, histograms, edges),
            ),
        ]
    names = [str(c) for c in range(problem.num_classes)]
    counts = {
        name: np.bincount(problem.y[drawn[0]], minlength=problem.num_classes)
        for name, drawn in coresets.items()
    }
    figures.append(
        (
            "Classes of the coreset",
            "Samples of each class, by label; for a random method, its first draw.",
            report.class_counts(counts, names),
        )
    )
    if problem.images is not None and "pbcs" in coresets:
        chosen = coresets["pbcs"][0]
        figures.append(
            (
                "The coreset",
                "What PBCS selected; a red frame marks a wrong label.",
                report.contact_sheet(
                    problem.images[chosen], problem.y[chosen], problem.y_true[chosen]
                ),
            )
        )
    for title, _, figure in figures:
        report.save(figure, folder / "figures" / f"{title.lower().replace(' ', '_')}.png")
    facts = [
        ("Data", f"{problem.name} ({problem.source})"),
        ("Candidates", len(problem.y)),
        ("Wrong labels", f"{np.mean(problem.y != problem.y_true):.1%}"),
        ("Coreset size", config.coreset_size),
        ("Selected by", _judged_by(config)),
        ("Judged by", f"{config.evaluation.model}, {config.evaluation.num_seeds} seeds"),
        ("Estimator", config_lib.loop_settings(config, len(problem.y)).estimator),
        ("Seed", config.seed),
    ]
    report.write_report(
        folder / "report.html", f"Coreset of {problem.name}", facts, summary["methods"], figures
    )
