"""The page of one run of feature selection."""

from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from pbcs_jax import data, report
from pbcs_jax.experiments.coreset_report import search_figures


def write_features_report(
    config: ConfigDict,
    problem: data.Problem,
    groups: np.ndarray,
    chosen: dict[str, list[np.ndarray]],
    history: list[dict[str, Any]],
    summary: dict[str, Any],
    folder: Path,
) -> None:
    """Writes `report.html` and the figures of one run into its folder."""
    figures: list[report.Entry] = [
        (
            "Accuracy by method",
            f"Test accuracy of a fresh {config.evaluation.model} that sees the chosen inputs only, "
            "last step.",
            report.accuracy_by_method(summary["methods"]),
        ),
        *search_figures(history),
    ]
    if problem.images is not None:
        examples = [int(np.flatnonzero(problem.y == c)[0]) for c in np.unique(problem.y)]
        figures.append(
            (
                "The chosen inputs",
                "White is chosen, black is chosen where the picture has ink; one sample of each "
                "class, as it was before any noise. For a random method, its first draw.",
                report.chosen_inputs(
                    {name: np.isin(groups, drawn[0]) for name, drawn in chosen.items()},
                    problem.images[examples],
                ),
            )
        )
    if "pbcs" in chosen:
        files = sorted((folder / "probabilities").glob("*.npz"))
        maps = np.stack([np.load(file)["probabilities"][groups] for file in files])
        if problem.images is not None:
            figures.append(
                (
                    "Probabilities over time",
                    "The probability of each input as the search goes on; white is 1.",
                    report.probability_film([int(f.stem) for f in files], maps.mean(-1)),
                )
            )
        elif groups.ndim == 1:
            figures.append(
                (
                    "Probabilities at the end",
                    "Of each input; the chosen ones are in colour.",
                    report.input_probabilities(maps[-1], chosen["pbcs"][0]),
                )
            )
    report.save_all(figures, folder / "figures")
    facts = [
        ("Data", f"{problem.name} ({problem.source})"),
        ("Samples", len(problem.y)),
        ("Noise on the inputs", f"{config.inputs.noise:g}"),
        ("Chosen", f"{config.coreset_size} of {groups.max() + 1}"),
        ("Selected by", config.selection.objective),
        ("Judged by", f"{config.evaluation.model}, {config.evaluation.num_seeds} seeds"),
        ("Seed", config.seed),
    ]
    report.write_report(
        folder / "report.html",
        f"Inputs of {problem.name}",
        facts,
        {"Methods": report.method_table(summary["methods"])},
        figures,
    )
