"""One content, three renderings."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from pbcs_jax.report.tables import (
    Cell,
    column_table,
    html_table,
    markdown_table,
    method_table,
    sweep_table,
    terminal_table,
)

DASH = "\N{EN DASH}"
METHODS = {
    "uniform": {
        "test_accuracy": {"mean": 0.9, "std": 0.01, "runs": [0.89, 0.91]},
        "seconds": 0.25,
        "wrong_labels": 0.2,
    },
    "pbcs": {
        "test_accuracy": {"mean": 0.9345, "std": 0.002, "runs": [0.9325, 0.9365]},
        "seconds": 1234.56,
        "wrong_labels": 0.034,
        "coreset_size": 1000,
        "class_imbalance": {"mean": 1.23456, "std": 0.5},
        "per_task": [0.1, 0.2],
    },
    "one|run": {"test_accuracy": {"mean": 0.85, "std": 0.0, "runs": [0.85]}, "seconds": 3},
}


def test_rows():
    headers, cells = method_table(METHODS)
    assert headers == [
        "method",
        "test accuracy, %",
        "vs uniform, points",
        "seconds",
        "wrong labels, %",
        "coreset size",
        "class imbalance",
    ]
    assert [[cell.text for cell in row] for row in cells] == [
        ["uniform", "90.00 ± 1.00", DASH, "0.2", "20.0", DASH, DASH],
        ["pbcs", "93.45 ± 0.20", "+3.45", "1,234.6", "3.4", "1,000", "1.235 ± 0.5"],
        ["one|run", "85.00", "-5.00", "3.0", DASH, DASH, DASH],
    ]
    assert [[cell.bold for cell in row][:3] for row in cells] == [
        [False, False, False],
        [True, True, False],
        [False, False, False],
    ]


def test_without_uniform_there_is_no_difference():
    headers, _ = method_table({"pbcs": METHODS["pbcs"], "other": METHODS["one|run"]})
    assert not any("uniform" in header for header in headers)


@pytest.mark.parametrize("mean", [None, math.nan])
def test_a_method_without_a_result_is_a_dash_and_never_the_best(mean):
    failed = {"test_accuracy": {"mean": mean, "std": None, "runs": []}}
    _, cells = method_table({"failed": failed, **METHODS})
    assert {cell.text for cell in cells[0][1:]} == {DASH}
    assert [row[0].text for row in cells if row[0].bold] == ["pbcs"]


def test_markdown():
    lines = markdown_table(method_table(METHODS)).splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[3].startswith("| **pbcs** | **93.45 ± 0.20** | +3.45 |")
    assert lines[4].startswith("| one\\|run | 85.00 |")


@pytest.mark.parametrize("width", [80, 140])
def test_terminal_shows_every_cell_and_takes_no_markup_from_names(width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(
        terminal_table(method_table({"[red]k[/red]": METHODS["one|run"], **METHODS}), "MNIST [red]")
    )
    text = console.export_text()
    for expected in ("[red]k[/red]", "MNIST [red]", "93.45 ± 0.20", "+3.45", "1,234.6", "1,000"):
        assert expected in text


def test_html_is_escaped_and_marks_the_best():
    text = html_table(method_table({"<b>": METHODS["one|run"], **METHODS}))
    assert "&lt;b&gt;" in text and "<b>" not in text
    assert text.count("<strong>") == 2


def test_a_sweep_has_a_column_a_point_and_the_best_of_each_in_bold():
    def spread(*runs):
        return {"mean": sum(runs) / len(runs), "std": 0.01, "runs": list(runs)}

    points = {
        "size=50": {"a": {"test_accuracy": spread(0.5, 0.7)}, "b": {"test_accuracy": spread(0.8)}},
        "size=99": {"a": {"test_accuracy": spread(0.9, 0.9)}},
    }
    headers, cells = sweep_table(points)
    assert headers == ["method", "size=50", "size=99"]
    assert [[c.text for c in row] for row in cells] == [
        ["a", "60.00 ± 1.00", "90.00 ± 1.00"],
        ["b", "80.00", "\N{EN DASH}"],
    ]
    assert [[c.bold for c in row] for row in cells] == [[False, False, True], [False, True, False]]


def test_of_wrong_labels_the_fewest_are_best():
    points = {"": {k: {"wrong_labels": {"mean": v}} for k, v in {"a": 0.5, "b": 0.1}.items()}}
    _, cells = sweep_table(points, "wrong_labels")
    assert [row[1].bold for row in cells] == [False, True]


def test_a_point_without_the_metric_has_an_empty_column():
    """Wrong labels are counted where there is noise, not where classes are unbalanced."""
    wrong = {"wrong_labels": {"mean": 0.25, "std": 0.0, "runs": [0.25]}}
    points = {"noise": {"pbcs": wrong}, "imbalance": {"pbcs": {}}}
    rows = sweep_table(points, "wrong_labels")
    assert [cell.bold for cell in rows.cells[0][1:]] == [True, False]
    assert rows.cells[0][2].text == DASH


def test_columns_of_any_kind_become_cells():
    rows = column_table(
        {
            "index": np.array([12345, 2]),
            "label": np.array(["a", "b"]),
            "target": np.array([[0.5, 1.0], [2.0, 3.0]]),
            "probability": np.array([0.25, np.nan], np.float32),
            "wrong": np.array([True, False]),
            "more": [Cell("x", bold=True), None],
        }
    )
    assert rows.headers == ["index", "label", "target", "probability", "wrong", "more"]
    assert [[cell.text for cell in row] for row in rows.cells] == [
        ["12345", "a", "0.5000, 1.0000", "0.2500", "yes", "x"],
        ["2", "b", "2.0000, 3.0000", DASH, "no", "None"],
    ]
    assert rows.cells[0][-1].bold


def test_a_link_is_quoted_and_a_picture_carries_its_text():
    link = Cell("a & b", link='runs/kind=a,rate=0.2/<"/report.html')
    text = html_table(column_table({"run": [link], "picture": [Cell('"7"', picture=b"PNG")]}))
    assert '<a href="runs/kind%3Da%2Crate%3D0.2/%3C%22/report.html">a &amp; b</a>' in text
    assert '<img alt="&quot;7&quot;" src="data:image/png;base64,UE5H">' in text
