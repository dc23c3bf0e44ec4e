"""Data summarization: choose samples by each method, judge each by a network trained on them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax import npz
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.choices import Samples
from pbcs_jax.data import Problem
from pbcs_jax.errors import check_known
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.selection import CHOICE
from pbcs_jax.experiments.task import Chosen, Experiment, Task
from pbcs_jax.portfolio import Auto, Choice
from pbcs_jax.report.figures import class_counts, contact_sheet
from pbcs_jax.report.files import read_record
from pbcs_jax.report.page import Entry
from pbcs_jax.report.selection import choice_entries, chosen_table, suspect_table
from pbcs_jax.rows import Rows
from pbcs_jax.select import select_coreset, soften

BY_LABELS = ("pbcs", "uniform", "stratified")
"""Methods for candidates that are too many to hold."""


def _task(config: ConfigDict, problem: Problem) -> Task:
    given = config.evaluation
    # Baselines that train a network train the judge's, which favours them.
    model = config_lib.make_net(given.model, given.width, given.dropout, problem.num_classes)
    outer = config_lib.loop_settings(config, len(problem.y))
    objective = config.selection.objective
    network = f" x {config.inner.steps} inner steps" if objective != "kernel" else ""
    length = f"{outer.outer_steps} outer steps x {outer.num_masks} masks{network}, estimator "
    length += str(outer.estimator)
    if objective == "auto":
        length = f"{config.time_budget:g} s without compiling"
    wrong = np.mean(problem.y != problem.y_true)
    x, held_out = problem.x, problem.validation
    if isinstance(x, Rows):
        for method in config.methods:
            check_known("method", method, BY_LABELS, ": the others read all of x")
        x, held_out = np.zeros((len(x), 1), np.float32), None  # not looked at
    return Task(
        n=len(problem.y),
        candidates=Candidates(x, problem.y, problem.num_classes, model, held_out, scale=False),
        baselines=BASELINES,
        select=_selection(config, problem),
        choice=lambda size: Samples((size,)),
        plan=(
            f"{len(problem.y)} candidates ({wrong:.0%} wrong labels), "
            f"{0 if problem.y_val is None else len(problem.y_val)} validation",
            f"{config.coreset_size or 'enough'} samples, {_judged_by(config)}, {length}",
        ),
        facts=[
            ("Wrong labels", f"{wrong:.1%}"),
            ("Selected by", _judged_by(config)),
            ("Length", length),
        ],
        entries=lambda chosen, folder: _entries(chosen, folder, problem, config.noise.kind),
        arrays=lambda chosen: {"labels": problem.labels[chosen], "rows": problem.indices[chosen]},
        columns=lambda draws: _describe(draws, problem, config.noise.kind != "none"),
    )


EXPERIMENT = Experiment(("pbcs", *BASELINES), lambda config: "samples", _task)


def _selection(config: ConfigDict, problem: Problem):
    model, size, n = config.model, config.coreset_size, len(problem.y)
    net = config_lib.make_net(model.name, model.width, model.dropout, problem.num_classes)
    outer = config_lib.outer_settings(config)
    by_kernel = {"objective": config_lib.kernel(config), **vars(config_lib.kernel_loop(config, n))}
    by_kernel["max_ratio"] = outer.max_ratio
    by_network = {"objective": config_lib.network(config), **vars(outer)}
    compute = config_lib.compute(config)
    validation = problem.validation
    if validation is not None:
        validation = validation[0], problem.classes[validation[1]]

    def by(options, key, **more):
        return select_coreset(
            key,
            problem.x,
            problem.labels,
            net,
            size,
            validation,
            compute=compute,
            **options,
            **more,
        )

    def search(key, plan, on_plan):
        own = config.evaluation
        return select_coreset(
            key,
            problem.x,
            problem.labels,
            config_lib.make_net(own.model, own.width, own.dropout, problem.num_classes),
            size or "auto",
            validation=validation,
            objective=Auto(config.time_budget, config.tolerance, plan, on_plan, scale=False),
        )

    if config.selection.objective == "auto":
        return search

    def select(key, start, callback):
        if config.selection.objective == "kernel":
            return by(by_kernel, key, start=start, callback=callback)
        if config.selection.objective == "kernel_then_network" and start is None:
            proxy = by(by_kernel, jax.random.fold_in(key, 1))
            start = soften(proxy.probabilities, len(proxy.indices), config.kernel.soften)
        return by(by_network, key, start=start, callback=callback)

    return select


def _describe(draws: list[np.ndarray], problem: Problem, corrupted: bool) -> dict[str, Any]:
    """Means over the draws: size, wrong labels, largest and smallest class."""
    counts = [np.bincount(problem.y_true[c], minlength=problem.num_classes) for c in draws]
    described: dict[str, Any] = {"coreset_size": float(np.mean([len(c) for c in draws]))}
    if corrupted:
        wrong = [np.mean(problem.y[c] != problem.y_true[c]) for c in draws]
        described["wrong_labels"] = float(np.mean(wrong))
    described["largest_class"] = float(np.mean([c.max() for c in counts]))
    described["smallest_class"] = float(np.mean([c.min() for c in counts]))
    return described


def _entries(chosen: Chosen, folder: Path, problem: Problem, noise_kind: str) -> list[Entry]:
    counts = {
        name: np.bincount(problem.y[drawn[0]], minlength=problem.num_classes)
        for name, drawn in chosen.items()
    }
    names = problem.classes.tolist()
    entries: list[Entry] = [
        (
            "Classes of the coreset",
            "Samples of each class, by label; for a random method, its first draw.",
            class_counts(counts, names),
        )
    ]
    if "pbcs" not in chosen:
        return entries
    images, y, y_true = problem.images, problem.labels, problem.classes[problem.y_true]
    _, coreset = npz.read(folder / "coreset.npz")
    rows = coreset["indices"]
    if images is not None:
        sheet = contact_sheet(images[rows], y[rows], y_true[rows])
        caption = "What PBCS selected; a red frame marks a wrong label."
        entries.append(("The coreset", caption, sheet))
    if (folder / CHOICE).exists():
        entries += choice_entries(Choice.of(read_record(folder / CHOICE)))
    probabilities = coreset["probabilities"][rows]
    label = {"label": coreset["labels"]}
    entries.append(chosen_table("samples", coreset["rows"], probabilities, label))
    if "suspect_indices" in coreset:
        of = coreset["suspect_indices"]
        entries.append(
            suspect_table(
                problem.indices[of],
                y[of],
                coreset["suspect_labels"],
                coreset["suspect_scores"],
                None if images is None else images[of],
                None if noise_kind == "none" else y_true[of],
            )
        )
    return entries


def _judged_by(config: ConfigDict) -> str:
    """What judges a mask during the selection."""
    kernel = f"kernel on {config.kernel.embeddings} embeddings"
    names = {"network": config.model.name, "kernel": kernel, "auto": "several ways, compared"}
    names["kernel_then_network"] = f"{kernel}, then {config.model.name}"
    return names[config.selection.objective]
