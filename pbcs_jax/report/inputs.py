"""Figures of chosen inputs: which they are, and how they came to be chosen."""

import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw

from pbcs_jax.report.figures import DPI, INK, PALETTE, WIDTH, chart, displayable


class Film(NamedTuple):
    """An animated picture: the bytes of a GIF."""

    gif: bytes


def chosen_inputs(masks: Mapping[str, ArrayLike], images: ArrayLike) -> Figure:
    """The chosen inputs in white over pictures, one row per method; black dots where there is ink.

    Args:
      masks: by method, `[H, W]` or `[H, W, C]`, true where an input is chosen.
      images: `[k, H, W, C]`, one of each class.
    """
    pictures = displayable(np.asarray(images))
    pictures = pictures if pictures.ndim == 3 else pictures.mean(-1)
    height, width = pictures.shape[1:]
    cell = (WIDTH - 1.5) / len(pictures)
    tall = cell * height / width
    figure = Figure(figsize=(WIDTH, 0.1 + len(masks) * (tall + 0.06)), dpi=DPI, facecolor="white")
    rows = figure.subplots(
        len(masks),
        len(pictures),
        squeeze=False,
        gridspec_kw={
            "left": 1.5 / WIDTH,
            "right": 1,
            "top": 0.99,
            "bottom": 0.01,
            "wspace": 0.05,
            "hspace": 0.05,
        },
    )
    for axes, (name, mask) in zip(rows, masks.items(), strict=True):
        chosen = np.asarray(mask, bool).reshape(height, width, -1).any(-1)
        for one, picture in zip(axes, pictures, strict=True):
            # Blue ground, lighter where the digit is; what is chosen is white, or black on ink.
            shown = np.array([0.16, 0.30, 0.55]) + picture[..., None] * np.array([0.35, 0.38, 0.3])
            shown[chosen] = np.where(picture[chosen, None] > 0.5, 0.0, 1.0)
            one.imshow(np.clip(shown, 0, 1), interpolation="nearest")
            one.set_axis_off()
        text = axes[0].text(
            -0.08, 0.5, name.replace("_", " "), transform=axes[0].transAxes, ha="right", va="center"
        )
        text.set(size=9, color=INK, parse_math=False)
    return figure


def probability_film(steps: Sequence[int], maps: ArrayLike, side: int = 308) -> Film:
    """The map of probabilities as it evolves, the last one shown for longer.

    Args:
      steps: `[T]` outer steps.
      maps: `[T, H, W]` in 0..1.
      side: pixels of the picture's height, at least.
    """
    maps = np.asarray(maps, float)
    times = -(-side // maps.shape[1])
    frames = []
    for step, values in zip(steps, maps, strict=True):
        grey = np.kron((255 * values).round().astype(np.uint8), np.ones((times, times), np.uint8))
        frame = Image.new("L", (grey.shape[1], grey.shape[0] + 24), 255)
        frame.paste(Image.fromarray(grey), (0, 24))
        ImageDraw.Draw(frame).text((6, 6), f"outer step {step}", fill=40)
        frames.append(frame)
    return film(frames)


def film(frames: Sequence[Image.Image]) -> Film:
    """A film of pictures of one size, the last one shown for longer."""
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[200] * (len(frames) - 1) + [2500],
        loop=0,
    )
    return Film(buffer.getvalue())


def input_probabilities(probabilities: ArrayLike, chosen: ArrayLike) -> Figure:
    """The probability of each input of a table, the chosen ones in colour.

    Args:
      probabilities: `[d]`.
      chosen: indices of those chosen.
    """
    values = np.asarray(probabilities, float)
    figure, axes = chart(3.0, "input", "probability s")
    marked = np.isin(np.arange(len(values)), np.asarray(chosen))
    axes.bar(np.arange(len(values)), values, color=np.where(marked, PALETTE[0], "#c3c7cc"))
    axes.set_xticks(np.flatnonzero(marked))
    axes.grid(False, axis="x")
    return figure
