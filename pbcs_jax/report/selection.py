"""What was chosen and which labels look wrong: entries of a page, and the page of a `Result`."""

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image

from pbcs_jax.report.figures import (
    GREY,
    PALETTE,
    chart,
    class_counts,
    contact_sheet,
    displayable,
    legend,
    outer_loss,
    probability_evolution,
)
from pbcs_jax.report.page import Entry, Fact, write_report
from pbcs_jax.report.tables import Cell, column_table

MOST_SUSPECTS = 100
"""As many are shown at most."""
_LARGEST = 96  # pixels of a picture in a table, either way


def write_selection(path: str | os.PathLike[str], result: Any) -> None:
    """Writes the page of one `Result`, of samples or of inputs.

    Args:
      path: The HTML file; it appears whole or not at all.
      result: What a selection returned; see `pbcs_jax.result`, a layer above this one.
    """
    chosen, labels, pictures = result.indices, result.labels, result.pictures
    if pictures is not None and pictures.shape[-1] not in (1, 3):
        pictures = None  # neither grey nor colour
    is_discrete = labels is not None and labels.ndim == 1 and labels.dtype.kind not in "fc"
    losses = result.history.get("outer_loss", ())
    facts: list[Fact] = [
        ("Chosen", f"{len(chosen)} of {len(result.probabilities)} {result.unit}"),
    ]
    if result.choice is None:
        facts.append(("Outer steps", len(losses)))
    entries = progress_entries(losses, result.history.get("histogram", ()), result.unit)
    if result.choice is not None:
        facts.append(("Chosen by", result.choice.winner))
        entries += choice_entries(result.choice)
    if is_discrete:
        names, numbers = np.unique(labels, return_inverse=True)
        counts = np.bincount(numbers[chosen], minlength=len(names))
        bars = class_counts({"chosen": counts}, names.tolist())
        entries.append(("Classes of the coreset", "Samples of each class, by label.", bars))
    if pictures is not None:
        captions = labels[chosen] if is_discrete else np.full(len(chosen), "")
        sheet = contact_sheet(pictures[chosen], captions)
        entries.append(("The coreset", "What was chosen.", sheet))
    columns = {"label": labels, "name": None if result.names is None else np.array(result.names)}
    shown = {name: values[chosen] for name, values in columns.items() if values is not None}
    entries.append(chosen_table(result.unit, chosen, result.probabilities[chosen], shown))
    if result.suspects is not None:
        of = result.suspects
        seen = None if pictures is None else pictures[of.indices]
        entries.append(suspect_table(of.indices, labels[of.indices], of.labels, of.scores, seen))
    write_report(path, f"{len(chosen)} chosen {result.unit}", facts, entries)


def progress_entries(losses: Sequence[float], histograms: ArrayLike, unit: str) -> list[Entry]:
    """The outer loss and the probabilities over the outer steps; nothing where there are no steps.

    Args:
      losses: `[T]`, `outer_loss` of `Result.history` or of metrics.jsonl.
      histograms: `[T, B]`, `histogram` of the same.
      unit: what is chosen, such as 'samples'.
    """
    if not len(losses):
        return []
    steps = np.arange(1, len(losses) + 1)
    heat = probability_evolution(steps, histograms, unit)
    return [
        ("Outer loss", "Mean over the masks of each outer step.", outer_loss(steps, losses)),
        ("Probabilities", f"How many {unit} have which probability, over time.", heat),
    ]


def chosen_table(
    unit: str, indices: ArrayLike, probabilities: ArrayLike, more: Mapping[str, Any]
) -> Entry:
    """The chosen, one per row.

    Args:
      unit: what was chosen, such as 'samples'.
      indices: `[K]`.
      probabilities: `[K]`, of the chosen.
      more: further columns, `[K]` each, that stand between these two.
    """
    columns = {"index": np.asarray(indices), **more, "probability": np.asarray(probabilities)}
    caption = f"{len(columns['index'])} {unit}. A click on the name of a column sorts by it."
    return f"Table of the chosen {unit}", caption, column_table(columns)


def choice_entries(choice: Any) -> list[Entry]:
    """What `objective='auto'` compared, the best first; and how it found the size, if it did.

    Args:
      choice: See `portfolio.Choice`, a layer above this one.
    """
    judged = choice.judged
    columns = {
        "way to choose": [one.name for one in judged],
        "score": [100 * one.score for one in judged],
        "standard error": ["" if one.error is None else 100 * one.error for one in judged],
        "trainings": [one.trainings for one in judged],
    }
    caption = "Short trainings on what each way chose, scored in percent on candidates that it did "
    caption += f"not choose and on validation data. {len(judged)} were compared in "
    caption += f"{choice.seconds:.0f} s, without {choice.compile_seconds:.0f} s of compiling."
    entries: list[Entry] = [("What was compared", caption, column_table(columns))]
    sizes = choice.sizes
    if sizes is not None:
        caption = "Short trainings on the first samples of one order, scored in percent on "
        caption += f"candidates that were held out. {sizes.size} is the smallest size whose score, "
        caption += f"smoothed, is at most {100 * sizes.tolerance:g} points below everything's."
        entries.append(("Quality against size", caption, quality_by_size(sizes)))
    return entries


def quality_by_size(sizes: Any) -> Figure:
    """Scores against the size of a coreset, and what is good enough.

    Args:
      sizes: See `portfolio.Sizes`, a layer above this one.
    """
    figure, axes = chart(3.6, "samples", "score, %")
    best = 100 * sizes.everything
    low = best - 100 * sizes.tolerance
    axes.axhspan(low, best, color=GREY, alpha=0.25, lw=0, label="good enough")
    at = [one.size for one in sizes.tried]
    smooth = [100 * one.smooth for one in sizes.tried]
    scores = [100 * one.score for one in sizes.tried]
    axes.plot(at, smooth, color=PALETTE[0], lw=1.8, label="smoothed")
    axes.plot(at, scores, "o", color=PALETTE[0], ms=5, label="measured")
    axes.axvline(sizes.size, color=PALETTE[5], lw=1.4, ls="--", label=f"{sizes.size:,} samples")
    axes.set_xscale("log")
    axes.set_xticks(at, [f"{size:,}" for size in at], rotation=45)
    axes.minorticks_off()
    legend(axes)
    return figure


def suspect_table(
    indices: np.ndarray,
    given: np.ndarray,
    labels: np.ndarray,
    scores: np.ndarray,
    pictures: np.ndarray | None = None,
    truth: np.ndarray | None = None,
) -> Entry:
    """The candidates whose label is probably wrong, the most suspect first, and how many are wrong.

    Args:
      indices: `[m]`.
      given: `[m]`, the labels that they have.
      labels: `[m]`, the labels that the model would give.
      scores: `[m]`, falling.
      pictures: `[m, height, width, channels]`.
      truth: `[m]`, the labels before noise was made; None where nobody knows.
    """
    shown = min(len(indices), MOST_SUSPECTS)
    columns: dict[str, Any] = {"rank": np.arange(1, shown + 1), "index": indices[:shown]}
    if pictures is not None:
        columns["picture"] = _thumbnails(pictures[:shown], indices[:shown])
    columns["label given"] = given[:shown]
    columns["label of the model"] = labels[:shown]
    caption = "Samples whose label a model that was trained on the coreset contradicts, the most "
    caption += f"suspect first: {shown} of {len(indices)}."
    if truth is not None and shown:
        wrong = given[:shown] != truth[:shown]
        columns["true label"], columns["wrong"] = truth[:shown], wrong
        caption += f" Precision of the {shown} most suspect: {wrong.mean():.1%}, as {wrong.sum()} "
        caption += "of these labels are really wrong."
    columns["score"] = scores[:shown]
    return "Suspects", caption, column_table(columns)


def _thumbnails(pictures: np.ndarray, indices: np.ndarray) -> list[Cell]:
    if not len(pictures):  # `displayable` asks for their range
        return []
    cells = []
    for index, picture in zip(indices, displayable(pictures), strict=True):
        image = Image.fromarray((255 * picture).round().astype(np.uint8))
        image.thumbnail((_LARGEST, _LARGEST))
        buffer = io.BytesIO()
        image.save(buffer, format="png")
        cells.append(Cell(f"sample {index}", picture=buffer.getvalue()))
    return cells
