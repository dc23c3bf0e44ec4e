"""Figures show their data; how they look is judged by eye."""

import io

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from pbcs_jax.report.figures import (
    _WRONG,
    accuracy_by_method,
    class_counts,
    contact_sheet,
    displayable,
    outer_loss,
    probability_evolution,
    sweep_figure,
    to_png,
)
from pbcs_jax.report.page import save_all

RNG = np.random.default_rng(0)
METHODS = {
    name: {"test_accuracy": {"mean": mean, "std": 0.01, "runs": [mean - 0.01, mean + 0.01]}}
    for name, mean in {"uniform": 0.85, "pbcs": 0.93, "k$center$": 0.8}.items()
}


def histograms(times):
    return RNG.integers(0, 50, (times, 20))


FIGURES = {
    "loss": lambda: outer_loss(np.arange(200), np.linspace(2, 1, 200)),
    "loss of one step": lambda: outer_loss([0], [1.5]),
    "probabilities": lambda: probability_evolution(
        np.arange(0, 500, 10), histograms(50), "samples"
    ),
    "probabilities once": lambda: probability_evolution([0], histograms(1), "samples"),
    "classes": lambda: class_counts({"pbcs": [3, 4], "uniform": [5, 2]}, ["a$b$", "c"]),
    "many classes": lambda: class_counts(
        {"pbcs": np.arange(100)}, [f"a long name {i}" for i in range(100)]
    ),
    "accuracy": lambda: accuracy_by_method(METHODS),
    "pictures": lambda: contact_sheet(RNG.random((30, 8, 8, 1)), np.arange(30) % 4),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_not_blank_and_are_reproducible(name):
    figure = FIGURES[name]()
    png = to_png(figure)
    pixels = imread(io.BytesIO(png))
    assert pixels.shape[1] == 1200
    assert np.ptp(pixels[..., :3]) > 0.5
    assert (pixels[..., :3].min(axis=-1) < 0.9).mean() > 0.002
    assert png == to_png(figure)
    assert b"Software" not in png and b"tIME" not in png


def test_equal_data_is_equal_files(tmp_path):
    entries = [(name, "", accuracy_by_method(METHODS)) for name in ("a", "b")]
    save_all(entries, tmp_path)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_smoothing_is_the_mean_of_what_there_is():
    losses = np.full(80, 2.0)
    losses[3] = np.nan
    raw, smooth = outer_loss(np.arange(80), losses).axes[0].lines
    np.testing.assert_array_equal(raw.get_ydata(), losses)
    np.testing.assert_allclose(smooth.get_ydata(), 2.0)


def test_the_evolution_names_what_it_counts():
    figure = probability_evolution(np.arange(1, 4), histograms(3), "inputs")
    assert [axes.get_ylabel() for axes in figure.axes] == ["probability s", "number of inputs"]
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())


def test_bars_are_the_counts():
    counts = {"pbcs": [3, 4, 0], "uniform": [5, 1, 1]}
    axes = class_counts(counts, range(3)).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [3, 4, 0, 5, 1, 1]


def test_the_best_method_is_on_top():
    axes = accuracy_by_method(METHODS).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "k$center$",
        "uniform",
        "pbcs",
    ]


def sheet(count, channels=1, dtype=np.uint8, wrong=None):
    images = RNG.integers(0, 256, (count, 6, 6, channels)).astype(dtype)
    labels = RNG.integers(0, 10, count)
    true_labels = None
    if wrong is not None:
        true_labels = np.where(np.arange(count) < wrong, labels + 1, labels)
    return contact_sheet(images, labels, true_labels), labels


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [1, 7, 200, 1000])
def test_contact_sheet_groups_by_label_without_overlap(count, channels):
    figure, labels = sheet(count, channels)
    axes, (title,) = figure.axes[0], figure.texts
    corners = {tuple(np.round(image.get_extent(), 6)) for image in axes.images}
    assert len(axes.images) == len(corners) == min(count, 200)
    assert [text.get_text() for text in axes.texts] == [str(label) for label in np.unique(labels)]
    assert ("200 of them shown" in title.get_text()) == (count > 200)
    right, left, bottom, top = axes.get_xlim()[1], *axes.get_xlim()[:1], *axes.get_ylim()
    for x0, x1, y0, y1 in corners:
        assert left <= x0 < x1 <= right and top <= y1 < y0 <= bottom
    assert len(to_png(figure)) > 1000


def test_wrong_labels_are_framed_in_red():
    def frames(figure):
        patches = figure.axes[0].patches
        assert all(isinstance(patch, Rectangle) for patch in patches)
        return sum(patch.get_edgecolor() == to_rgba(_WRONG) for patch in patches)

    figure, _ = sheet(50, wrong=6)
    assert frames(figure) == 6
    assert "6 with a wrong label" in figure.texts[0].get_text()
    assert frames(sheet(50, wrong=0)[0]) == frames(sheet(50)[0]) == 0


@pytest.mark.parametrize("low, high", [(0, 1), (-2.5, 3), (0, 255), (7, 7)])
def test_floats_of_any_range_are_displayable(low, high):
    images = np.linspace(low, high, 4 * 5 * 5 * 3).reshape(4, 5, 5, 3)
    figure = contact_sheet(images, ["cat", "dog", "cat", "dog"])
    pixels = np.stack([image.get_array() for image in figure.axes[0].images])
    assert pixels.min() == 0 and pixels.max() == (1 if high > low else 0)


def test_curves_over_numbers_share_their_places():
    """Moved aside, the left one of two equal and steep curves would seem the higher."""
    points = [(10.0, 1.0), (60.0, 1.0)]
    curves = {"pbcs": points, "uniform": points}
    axes = sweep_figure("size", [10, 200], curves, "accuracy").axes[0]
    places = [container[0].get_xdata().tolist() for container in axes.containers]
    assert places == [[10, 200], [10, 200]]
    axes = sweep_figure("data", ["clean", "noisy"], curves, "accuracy").axes[0]
    first, second = (container[0].get_xdata() for container in axes.containers)
    assert (first < second).all()


def test_pixels_of_another_scale_are_not_black():
    """scikit-learn's digits go from 0 to 16; a dark picture of 0..255 stays dark."""
    digits = np.arange(17, dtype=np.uint8)[:16].reshape(1, 4, 4, 1)
    assert displayable(digits).max() == 1
    dark = np.full((1, 4, 4, 1), 64, np.uint8)
    np.testing.assert_allclose(displayable(dark), 64 / 255)
