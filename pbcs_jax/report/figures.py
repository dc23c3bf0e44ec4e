"""The figures of a run, from plain arrays.

Every function returns a `matplotlib.figure.Figure` made without pyplot: no global state, no
display, safe in threads. The page that shows a figure gives it its heading and caption.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import ArrayLike

from pbcs_jax.report.tables import REFERENCE, Methods, accuracy_text, mean_accuracy

WIDTH, DPI = 8.0, 150  # inches, and 1200 pixels: sharp at the width of the page
INK, _FAINT, GREY = "#333333", "#e3e6ea", "#9a9fa6"
# Okabe and Ito's colours, which the colour-blind can tell apart, without the light yellow; then
# four more, for figures with so many methods that markers must help.
PALETTE = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
    *("#000000", "#7b3294", "#8c510a", "#80cdc1"),
)
_MARKERS = "osD^vPX<>*"
_WRONG = "#d4001a"
_MOST_PICTURES = 200


def outer_loss(steps: ArrayLike, losses: ArrayLike) -> Figure:
    """The outer loss, mean over masks, against the outer step, and its moving mean.

    Args:
      steps: `[T]` outer steps.
      losses: `[T]` losses; NaN where a step has none.
    """
    steps, losses = np.asarray(steps), np.asarray(losses, float)
    figure, axes = chart(3.4, "outer step", "outer loss (mean over masks)")
    width = len(steps) // 40 * 2 + 1
    if width > 1:
        axes.plot(steps, losses, color=PALETTE[0], alpha=0.3, lw=0.9, label="each step")
        smooth = _moving_mean(losses, width)
        axes.plot(steps, smooth, color=PALETTE[0], lw=2.2, label=f"mean of {width} steps")
        legend(axes)
    else:  # too few steps to smooth
        axes.plot(steps, losses, "o-", color=PALETTE[0], lw=1.5, ms=4)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.01)
    return figure


def probability_evolution(steps: ArrayLike, histograms: ArrayLike, unit: str) -> Figure:
    """How the probabilities leave the middle for 0 and 1: a heat map of counts.

    Args:
      steps: `[T]` outer steps.
      histograms: `[T, B]` how many probabilities fall into each of B equal bins of 0..1.
      unit: what is counted, such as 'samples'.
    """
    steps, counts = np.asarray(steps, float), np.asarray(histograms, float)
    figure, axes = chart(3.8, "outer step", "probability s")
    middles = (steps[1:] + steps[:-1]) / 2
    first, last = (steps[0], steps[-1]) if len(steps) > 1 else (steps[0] - 0.5, steps[0] + 0.5)
    times = np.concatenate([[first], middles, [last]])
    shown = np.ma.masked_less(counts.T, 1)  # none: the empty background
    norm = LogNorm(1, max(10.0, counts.max()))
    edges = np.linspace(0, 1, counts.shape[1] + 1)
    image = axes.pcolorfast(times, edges, shown, cmap="viridis_r", norm=norm)
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=30, format="{x:,.0f}")
    bar.set_label(f"number of {unit}", color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, colors=INK, which="both", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False)
    return figure


def class_counts(
    counts_by_method: Mapping[str, ArrayLike], class_names: Sequence[object]
) -> Figure:
    """How many samples of each class each method selected, as grouped bars.

    Args:
      counts_by_method: `{name: [C]}`.
      class_names: `[C]` names.
    """
    figure, axes = chart(3.2, "class", "selected samples")
    places = np.arange(len(class_names))
    width = 0.8 / len(counts_by_method)
    colours = _colours(counts_by_method)
    for index, (name, counts) in enumerate(counts_by_method.items()):
        shift = (index - (len(counts_by_method) - 1) / 2) * width
        axes.bar(places + shift, np.asarray(counts), width, color=colours[name], label=name)
    names = [str(name) for name in class_names]
    slanted = max(map(len, names)) * min(len(names), 40) > 90
    every = -(-len(names) // (25 if slanted else 40))  # more labels would run into each other
    axes.set_xticks(
        places[::every],
        names[::every],
        parse_math=False,
        rotation=45 if slanted else 0,
        ha="right" if slanted else "center",
        rotation_mode="anchor",
    )
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="x")
    legend(axes)
    return figure


def accuracy_by_method(methods: Methods) -> Figure:
    """Test accuracy: mean and standard deviation, and every run as a small dot; best on top.

    Args:
      methods: The `methods` of summary.json.
    """
    means = {name: mean_accuracy(record) for name, record in methods.items()}
    names = sorted((name for name in means if np.isfinite(means[name])), key=means.__getitem__)
    figure, axes = chart(0.9 + 0.42 * len(names), "test accuracy (%)", "")
    colours = _colours(methods)
    text: dict[str, Any] = {"va": "center", "size": 9, "color": INK}
    beside = axes.get_yaxis_transform()
    for place, name in enumerate(names):
        accuracy = methods[name]["test_accuracy"]
        runs = 100 * np.asarray(accuracy.get("runs", ()), float)
        spread = 100 * (accuracy.get("std") or 0.0)
        axes.errorbar(means[name], place, xerr=spread, fmt="o", color=colours[name], ms=6, lw=1.8)
        if len(runs) > 1:
            below = np.full(len(runs), place - 0.25)
            axes.plot(runs, below, "o", color=colours[name], ms=3.5, alpha=0.55, mew=0)
        axes.text(1.02, place, accuracy_text(methods[name]), transform=beside, **text)
    if REFERENCE in names:
        axes.axvline(means[REFERENCE], color=GREY, lw=1, ls=(0, (4, 3)), zorder=0.9)
    axes.yaxis.set_major_locator(FixedLocator(range(len(names))))
    axes.set_yticklabels(names, parse_math=False, fontsize=10)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    return figure


def sweep_figure(
    axis: str,
    values: Sequence[Any],
    curves: Mapping[str, Sequence[tuple[float, float]]],
    ylabel: str,
) -> Figure:
    """A metric of each method along a sweep, with standard deviations as error bars.

    Args:
      axis: name of what is varied.
      values: `[P]` numbers, or names, which stand side by side.
      curves: `{method: [P] (mean, std)}`; NaN where a method has none.
      ylabel: the metric.
    """
    figure, axes = chart(4.0, axis, ylabel)
    are_numbers = len(values) > 1 and not any(isinstance(value, str) for value in values)
    places = np.asarray(values, float) if are_numbers else np.arange(len(values))
    # Error bars of neighbours would hide each other: beside a name each method stands a little to
    # the right. Not so at a number: where curves are steep, the left one would seem the higher.
    apart = 0.0 if are_numbers else 0.06
    colours = _colours(curves)
    middle = (len(curves) - 1) / 2
    for index, (name, points) in enumerate(curves.items()):
        mean, std = np.asarray(points, float).T
        axes.errorbar(
            places + (index - middle) * apart,
            mean,
            yerr=std,
            ls="-" if are_numbers else "",
            color=colours[name],
            ms=5,
            lw=1.6,
            capsize=2,
            marker=_MARKERS[index % len(_MARKERS)],
            label=name,
        )
    axes.set_xticks(places, [str(value) for value in values], parse_math=False)
    if not are_numbers:
        axes.set_xlim(-0.5, len(values) - 0.5)
    legend(axes)
    return figure


def contact_sheet(
    images: ArrayLike, labels: ArrayLike, true_labels: ArrayLike | None = None
) -> Figure:
    """The selected pictures, grouped by label; a wrong label is framed in red.

    At most 200 are drawn, spread evenly over the sorted labels.

    Args:
      images: `[k, H, W, C]`, C 1 or 3: uint8, floats in 0..1, or any range, then stretched.
      labels: `[k]` numbers or names, as the model sees them.
      true_labels: `[k]` the same before corruption.
    """
    labels = np.asarray(labels)
    wrong = labels != (labels if true_labels is None else np.asarray(true_labels))
    spread = np.linspace(0, len(labels) - 1, min(len(labels), _MOST_PICTURES)).round().astype(int)
    shown = np.argsort(labels, kind="stable")[spread]
    pictures = displayable(np.asarray(images)[shown])
    columns = int(np.clip(np.sqrt(4 * len(shown)), 10, 20))
    tall = pictures.shape[1] / pictures.shape[2]
    places, captions, height = _flow([str(label) for label in labels[shown]], columns, tall)

    # Exact inches instead of a layout engine, so that no picture is squeezed and no margin is left.
    margin, heading = 0.06, 0.3
    sheet = height * (WIDTH - 2 * margin) / columns
    total = sheet + heading + margin
    figure = Figure(figsize=(WIDTH, total), dpi=DPI, facecolor="white")
    axes = figure.add_axes((margin / WIDTH, margin / total, 1 - 2 * margin / WIDTH, sheet / total))
    axes.set_axis_off()
    for (x, y), picture, index in zip(places, pictures, shown, strict=True):
        wide, high = 0.94, tall - 0.06
        extent = (x, x + wide, y + high, y)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect="auto")
        if wrong[index]:
            frame = Rectangle((x, y), wide, high, fill=False, ec=_WRONG, lw=2.2, zorder=3)
            axes.add_patch(frame).set_clip_on(False)
    axes.set(xlim=(0, columns), ylim=(height, 0))  # each picture has moved the limits to its own
    for x, y, caption in captions:
        axes.text(x, y, caption, size=9, weight="bold", color=INK, parse_math=False)
    title = f"{len(labels):,} selected"
    if len(shown) < len(labels):
        title += f" ({len(shown)} of them shown)"
    if true_labels is not None:
        title += f", {wrong.sum():,} with a wrong label (red frame)"
    figure.text(margin / WIDTH, 1 - margin / total, title, size=10, color=INK, va="top")
    return figure


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG without version or date: equal figures are equal bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second layout moves everything by a fraction of a pixel
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def chart(height: float, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    """A figure with one pair of axes in the style that all charts share."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel, color=INK, labelpad=6)
    axes.set_ylabel(ylabel, color=INK, labelpad=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=9, colors=INK, length=0, pad=5)
    axes.grid(color=_FAINT, lw=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def legend(axes: Axes) -> None:
    """A legend above the chart, where it hides nothing."""
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=6, frameon=False, fontsize=9, borderpad=0
    )
    for text in legend.get_texts():
        text.set(parse_math=False, color=INK)


def _colours(names: Iterable[str]) -> dict[str, str]:
    """Grey for the reference, the palette in order for the others, alike in all figures."""
    others = [name for name in names if name != REFERENCE]
    palette = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(others)}
    return {**palette, REFERENCE: GREY}


def _moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Centred mean over the finite ones of `width` values; fewer at both ends. `[T] -> [T]`."""
    finite = np.isfinite(values)
    window = np.ones(width)
    total = np.convolve(np.where(finite, values, 0.0), window, mode="same")
    count = np.convolve(finite, window, mode="same")
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def displayable(images: np.ndarray) -> np.ndarray:
    """`[k, H, W, C]` in any range to `[k, H, W, C]` in 0..1, without C if it is 1."""
    if images.dtype == np.uint8 and images.max() > 63:  # else they have another scale, as 0..16
        images = images / 255.0
    low, high = images.min(), images.max()
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    scaled = (images - low) / (high - low or 1.0)  # a constant has no range to stretch
    return scaled[..., 0] if scaled.shape[-1] == 1 else scaled


def _flow(
    labels: Sequence[str], columns: int, tall: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float, str]], float]:
    """Places groups of equal labels like words on lines, each below its caption.

    Args:
      labels: `[k]`, equal ones adjacent.
      columns: Width of a line, in pictures.
      tall: Height of a picture, in widths.

    Returns:
      `[k]` top left corners, the captions with theirs, and the height, all in picture widths.
    """
    letter, head, gap = 0.012 * columns, 0.029 * columns, 0.4
    places: list[tuple[float, float]] = []
    captions: list[tuple[float, float, str]] = []
    x, y, bottom = 0.0, head, 0.0
    for label in dict.fromkeys(labels):
        count = labels.count(label)
        across = max(min(count, columns), letter * len(label))
        if x > 0 and x + across > columns:
            x, y = 0.0, bottom + head
        captions.append((x, y - 0.005 * columns, label))
        places += [(x + i % columns, y + i // columns * tall) for i in range(count)]
        bottom = max(bottom, y + -(-count // columns) * tall + 0.1)
        x += across + gap
    return places, captions, bottom
