"""The page of one summarization run."""

from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from pbcs_jax import data, report
from pbcs_jax.experiments import config as config_lib


def write_coreset_report(
    config: ConfigDict,
    problem: data.Problem,
    coresets: dict[str, list[np.ndarray]],
    history: list[dict[str, Any]],
    summary: dict[str, Any],
    folder: Path,
) -> None:
    """Writes `report.html` and the figures of one run into its folder."""
    figures: list[report.Entry] = [
        (
            "Accuracy by method",
            f"Test accuracy of a fresh {config.evaluation.model} trained on each coreset, "
            "last step.",
            report.accuracy_by_method(summary["methods"]),
        )
    ]
    figures += search_figures(history)
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
    report.save_all(figures, folder / "figures")
    facts = [
        ("Data", f"{problem.name} ({problem.source})"),
        ("Candidates", len(problem.y)),
        ("Wrong labels", f"{np.mean(problem.y != problem.y_true):.1%}"),
        ("Coreset size", config.coreset_size),
        ("Selected by", judged_by(config)),
        ("Judged by", f"{config.evaluation.model}, {config.evaluation.num_seeds} seeds"),
        ("Estimator", config_lib.loop_settings(config, len(problem.y)).estimator),
        ("Seed", config.seed),
    ]
    report.write_report(
        folder / "report.html",
        f"Coreset of {problem.name}",
        facts,
        {"Methods": report.method_table(summary["methods"])},
        figures,
    )


def search_figures(history: list[dict[str, Any]]) -> list[report.Entry]:
    """The outer loss and the probabilities over time; none without a history."""
    if not history:
        return []
    steps = [record["step"] for record in history]
    histograms = np.array([record["histogram"] for record in history])
    edges = np.linspace(0, 1, histograms.shape[1] + 1)
    return [
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


def judged_by(config: ConfigDict) -> str:
    """What judges a mask during the selection."""
    kernel = f"kernel on {config.kernel.features} features"
    names = {"network": config.model.name, "kernel": kernel}
    names["kernel_then_network"] = f"{kernel}, then {config.model.name}"
    return names[config.selection.objective]
