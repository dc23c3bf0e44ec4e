"""Figures of the analysis: how probabilities, wrong labels and the gradient mapping evolve."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image

from pbcs_jax.report.figures import GREY, PALETTE, chart, legend, to_png
from pbcs_jax.report.inputs import Film, film

_BINS = 20
_WIDE = 640  # pixels of a frame
_MOST_FRAMES = 40


def wrong_labels_over_time(steps: ArrayLike, expected: ArrayLike, largest: ArrayLike) -> Figure:
    """The share of wrong labels of the coreset, in percent, against the outer step.

    Args:
      steps: `[T]` outer steps.
      expected: `[T]`, of a coreset that is drawn from p(m | s), in expectation.
      largest: `[T]`, of the K samples with the largest probabilities.
    """
    figure, axes = chart(3.4, "outer step", "wrong labels, %")
    for name, values, colour in (
        ("drawn from p(m|s)", expected, PALETTE[0]),
        ("the K largest probabilities", largest, PALETTE[1]),
    ):
        axes.plot(steps, 100 * np.asarray(values), "o-", color=colour, lw=1.8, ms=3, label=name)
    axes.set_ylim(0, 100)
    legend(axes)
    return figure


def histogram_film(steps: Sequence[int], probabilities: ArrayLike, wrong: ArrayLike) -> Film:
    """Histograms of s over time, wrong labels above right ones; at most 40 frames.

    Args:
      steps: `[T]` outer steps.
      probabilities: `[T, n]`.
      wrong: `[n]`, whose label is wrong.
    """
    s, wrong = np.asarray(probabilities), np.asarray(wrong, bool)
    edges = np.linspace(0, 1, _BINS + 1)
    middles, width = (edges[1:] + edges[:-1]) / 2, 0.9 / _BINS
    shown = np.linspace(0, len(steps) - 1, min(len(steps), _MOST_FRAMES)).round().astype(int)
    frames = []
    for number in shown:
        figure, axes = chart(3.4, "probability s", "samples")
        right = np.histogram(s[number][~wrong], edges)[0]
        both = np.histogram(s[number], edges)[0]
        axes.bar(middles, both, width, color=GREY, label="wrong label")
        axes.bar(middles, right, width, color=PALETTE[0], label="right label")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, len(wrong))
        axes.set_title(f"outer step {steps[number]}", size=10, loc="right")
        legend(axes)
        picture = Image.open(io.BytesIO(to_png(figure))).convert("RGB")
        frames.append(picture.resize((_WIDE, _WIDE * picture.height // picture.width)))
    return film(frames)


def mapping_over_time(traces: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """The running mean of the gradient mapping's square norm, and the theorem's two terms.

    Args:
      traces: by method, `mapping`, `first` and `second`, `[T]` each.
    """
    figure, axes = chart(4.6, "outer steps T", "mean square norm of the gradient mapping")
    for index, (name, found) in enumerate(traces.items()):
        colour, steps = PALETTE[index % len(PALETTE)], np.arange(1, len(found["mapping"]) + 1)
        mean = np.cumsum(found["mapping"]) / steps
        axes.plot(steps, mean, color=colour, lw=2, label=name.replace("_", " "))
        axes.plot(steps, found["second"], color=colour, lw=1, ls=":")
        if index == 0:
            axes.plot(steps, found["first"], color=GREY, lw=1.2, ls="--")
    axes.plot([], [], color=GREY, lw=1.2, ls="--", label="1st term")
    axes.plot([], [], color=GREY, lw=1, ls=":", label="2nd term")
    axes.set_xscale("log")
    axes.set_yscale("log")
    legend(axes)
    return figure
