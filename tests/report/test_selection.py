"""The page of a selection from Python: what was chosen, and which labels look wrong."""

import re

import numpy as np
import pytest

from pbcs_jax.report.selection import suspect_table
from pbcs_jax.result import Result, Suspects

RNG = np.random.default_rng(0)
HISTORY = {
    "outer_loss": np.linspace(2, 1, 5),
    "histogram": RNG.integers(0, 9, (5, 20)),
}
N = 150


def samples(**changes):
    fields = {
        "indices": np.array([3, 20, 140]),
        "probabilities": np.linspace(0, 1, N),
        "history": HISTORY,
        "labels": np.array(["cat", "d<o>g"])[np.arange(N) % 2],
        "pictures": RNG.normal(size=(N, 6, 5, 1)),
        "find_suspects": lambda: Suspects(
            np.arange(N)[::-1], np.linspace(1, 0, N), np.full(N, "cow")
        ),
    }
    return Result(**fields | changes)


def page_of(result, tmp_path):
    result.to_html(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text()


def table(page, heading):
    """The texts of a table, rows of cells; a picture is its description."""
    part = page.split(f"<h2>{heading}</h2>")[1].split("</table>")[0]
    part = re.sub(r'<img alt="([^"]*)"[^>]*>', r"\1", part)
    rows = re.findall(r"<tr>(.*?)</tr>", part)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_the_page_of_samples(tmp_path):
    page = page_of(samples(), tmp_path)
    assert "3 of 150 samples" in page and "<dd>5</dd>" in page
    assert re.findall("<h2>(.*?)</h2>", page) == [
        "Outer loss",
        "Probabilities",
        "Classes of the coreset",
        "The coreset",
        "Table of the chosen samples",
        "Suspects",
    ]
    assert table(page, "Table of the chosen samples") == [
        ["index", "label", "probability"],
        ["3", "d&lt;o&gt;g", "0.0201"],
        ["20", "cat", "0.1342"],
        ["140", "cat", "0.9396"],
    ]
    suspects = table(page, "Suspects")
    assert len(suspects) == 101 and "100 of 150" in page and "Precision" not in page
    assert suspects[0] == [
        *("rank", "index", "picture", "label given", "label of the model", "score")
    ]
    assert suspects[1] == ["1", "149", "sample 149", "d&lt;o&gt;g", "cow", "1.0000"]
    assert len(re.findall(r'<td><img alt="sample \d+" src="data:image/png;base64,', page)) == 100


def test_the_page_of_inputs_names_them(tmp_path):
    result = Result(
        np.array([0, 2]), np.array([0.9, 0.1, 1.0]), HISTORY, unit="inputs", names=["a", "b", "c"]
    )
    page = page_of(result, tmp_path)
    assert table(page, "Table of the chosen inputs") == [
        ["index", "name", "probability"],
        ["0", "a", "0.9000"],
        ["2", "c", "1.0000"],
    ]
    assert "Suspects" not in page and "samples" not in page


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({"labels": RNG.normal(size=N)}, "Classes of the coreset"),
        ({"labels": RNG.normal(size=(N, 2))}, "Classes of the coreset"),
        ({"labels": None, "find_suspects": None}, "Suspects"),
        ({"pictures": None}, "The coreset"),
        ({"pictures": RNG.normal(size=(N, 4, 4, 2))}, "The coreset"),
        ({"history": {}}, "Outer loss"),
    ],
    ids=["regression", "targets", "no labels", "no pictures", "two channels", "no steps"],
)
def test_what_is_not_there_is_left_out(tmp_path, changes, left_out):
    page = page_of(samples(**changes), tmp_path)
    assert f"<h2>{left_out}</h2>" not in page
    assert len(table(page, "Table of the chosen samples")) == 4


def test_large_pictures_are_made_small(tmp_path):
    pictures = RNG.integers(0, 256, (N, 200, 100, 3), np.uint8)
    assert len(page_of(samples(pictures=pictures), tmp_path)) < 4e6


def test_precision_counts_those_shown():
    given, truth = np.zeros(150, int), np.arange(150) % 4  # a quarter is right
    found = (np.arange(150), given, truth, np.linspace(1, 0, 150))
    _, caption, rows = suspect_table(*found, truth=truth)
    assert "Precision of the 100 most suspect: 75.0%" in caption
    assert rows.headers[-3:] == ["true label", "wrong", "score"]
    assert [row[-2].text for row in rows.cells[:5]] == ["no", "yes", "yes", "yes", "no"]
    few = [values[:8] for values in found]
    assert "Precision of the 8 most suspect: 75.0%" in suspect_table(*few, truth=truth[:8])[1]


def test_no_suspects_are_an_empty_table():
    none = np.zeros(0, int)
    _, caption, rows = suspect_table(none, none, none, none, np.zeros((0, 4, 4, 1)), none)
    assert not rows.cells and "0 of 0" in caption
