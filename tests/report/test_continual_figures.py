"""Figures of what networks remember: what is drawn is what was measured."""

import numpy as np

from pbcs_jax.report.continual import accuracy_over_time, forgetting_matrix, memory_over_time
from pbcs_jax.report.figures import to_png

MATRIX = np.array([[[0.9, 0.0], [0.5, 0.8]], [[0.7, 0.0], [0.3, 0.6]]])  # [S, T, T]


def test_accuracy_is_that_over_the_tasks_so_far():
    figure = accuracy_over_time({"pbcs": MATRIX, "uniform": MATRIX / 2})
    (axes,) = figure.axes
    lines = [line for line in axes.lines if len(line.get_ydata()) == 2 and line.get_marker() != "_"]
    np.testing.assert_allclose(lines[0].get_ydata(), [80.0, 55.0])
    np.testing.assert_allclose(lines[1].get_ydata(), [40.0, 27.5])
    assert to_png(figure).startswith(b"\x89PNG")


def test_the_matrix_hides_what_was_not_tested():
    figure = forgetting_matrix({"a": MATRIX[0], "b": MATRIX[1], "c": MATRIX[0], "d": MATRIX[1]})
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:4] == ["a", "b", "c", "d"]
    shown = figure.axes[1].images[0].get_array()
    np.testing.assert_allclose(shown.compressed(), [70.0, 30.0, 60.0])
    assert shown.mask.tolist() == [[False, True], [False, False]]


def test_the_memory_frames_wrong_labels_only():
    images = np.arange(6 * 16).reshape(6, 4, 4, 1) / 96
    places = np.array([[0, 1, 2, -1], [0, 4, 5, -1]])
    wrong = np.array([False, True, False, False, False, True])
    figure = memory_over_time(places, images, wrong)
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == 6
    framed = [axes.spines["top"].get_visible() for axes in drawn]
    assert framed == [False, True, False, False, False, True]
    np.testing.assert_allclose(drawn[4].images[0].get_array(), images[4, ..., 0])
