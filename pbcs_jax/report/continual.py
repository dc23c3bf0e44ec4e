"""Figures of what networks remember: accuracy per task over time, and what a memory has."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from pbcs_jax.report.figures import DPI, INK, WIDTH, displayable, sweep_figure

_COLUMNS, _SHOWN = 3, 20


def accuracy_over_time(matrices: Mapping[str, np.ndarray]) -> Figure:
    """The mean accuracy over the tasks so far, after each task.

    Args:
      matrices: by method `[S, T, T]`, after task t on task j, of S seeds.
    """
    curves = {}
    for name, matrix in matrices.items():
        so_far = [100 * matrix[:, t, : t + 1].mean(axis=1) for t in range(matrix.shape[1])]
        curves[name] = [(float(own.mean()), float(own.std())) for own in so_far]
    count = len(next(iter(curves.values())))
    return sweep_figure("tasks learnt", list(range(1, count + 1)), curves, "accuracy, %")


def forgetting_matrix(matrices: Mapping[str, np.ndarray]) -> Figure:
    """One heat map per method, tasks learnt downwards and tasks tested to the right.

    Args:
      matrices: by method `[T, T]` fractions; above the diagonal nothing was tested.
    """
    columns = min(_COLUMNS, len(matrices))
    lines = -(-len(matrices) // columns)
    figure = Figure(figsize=(WIDTH, 2.9 * lines), dpi=DPI, facecolor="white", layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, (name, matrix) in zip(panels, matrices.items(), strict=False):
        axes.set_axis_on()
        later = np.triu(np.ones_like(matrix, bool), 1)
        shown = np.ma.masked_array(100 * matrix, later)
        image = axes.imshow(shown, cmap="viridis", vmin=0, vmax=100)
        axes.set_title(name, size=10, color=INK, parse_math=False)
        axes.tick_params(labelsize=8, colors=INK, length=0)
        numbers = np.arange(len(matrix))
        axes.set_xticks(numbers, [str(n + 1) for n in numbers])
        axes.set_yticks(numbers, [str(n + 1) for n in numbers])
        axes.set(xlabel="tested on task", ylabel="after task")
    bar = figure.colorbar(image, ax=panels.tolist(), pad=0.02, aspect=30)
    bar.set_label("accuracy, %", color=INK)
    return figure


def memory_over_time(places: np.ndarray, images: np.ndarray, wrong: np.ndarray) -> Figure:
    """A row of pictures per task learnt: at most 20 of those in memory, spread evenly.

    Args:
      places: `[T, size]` indices of pictures, -1 where there is none.
      images: `[n, H, W, C]`, C 1 or 3.
      wrong: `[n]`, whose label is wrong; these have a red frame.
    """
    pictures = displayable(images)
    count = len(places)
    height = 0.1 + count * 0.95 * WIDTH / _SHOWN * 1.15
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    panels = figure.subplots(count, _SHOWN, squeeze=False)
    for line, (axes_of_line, own) in enumerate(zip(panels, places, strict=True)):
        stored = np.sort(own[own >= 0])
        spread = np.linspace(0, len(stored) - 1, min(len(stored), _SHOWN)).round().astype(int)
        for number, axes in enumerate(axes_of_line):
            axes.set(xticks=[], yticks=[])
            for side in axes.spines.values():
                side.set_visible(False)
            if number == 0:
                axes.set_ylabel(str(line + 1), size=8, rotation=0, labelpad=8, va="center")
            if number < len(spread):
                place = stored[spread[number]]
                axes.imshow(pictures[place], cmap="gray", vmin=0, vmax=1)
                for side in axes.spines.values():
                    side.set(visible=bool(wrong[place]), color="#d4001a", linewidth=1.8)
    figure.subplots_adjust(0.03, 0.01, 0.995, 0.99, 0.05, 0.05)
    return figure
