"""The page stands alone and trusts no text."""

import base64
import io
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from pbcs_jax.report.figures import class_counts, outer_loss
from pbcs_jax.report.page import save_all, write_report
from pbcs_jax.report.tables import Cell, column_table, method_table

EVIL = '<script>alert("1")</script> & "co\''
METHODS = {
    "pbcs": {"test_accuracy": {"mean": 0.93, "std": 0.01, "runs": [0.92, 0.94]}, "seconds": 12.0},
    EVIL: {"test_accuracy": {"mean": 0.9, "std": 0.01, "runs": [0.89, 0.91]}, "seconds": 0.1},
}


def write(path, title="MNIST"):
    entries = [
        (EVIL, EVIL, method_table(METHODS)),
        ("Outer loss", "Falls & stays.", outer_loss(np.arange(50), np.linspace(2, 1, 50))),
        (EVIL, EVIL, class_counts({"pbcs": [1, 2]}, ["a", "b"])),
    ]
    write_report(path, title, [("seed", 0), (EVIL, EVIL)], entries, banner=EVIL)
    return path.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Start tags and text, and a check that tags are closed in order."""

    void = frozenset({"meta", "link", "img", "input"})

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else None, data))


def test_page_is_well_formed_and_escaped(tmp_path):
    outline = Outline(write(tmp_path / "report.html", EVIL))
    assert not outline.open
    scripts = [text for tag, text in outline.texts if tag == "script"]
    assert len(scripts) == 1 and "alert" not in scripts[0] and "aria-sort" in scripts[0]
    for place in ("title", "h1", "h2", "dt", "dd", "td", "figcaption", "p"):
        assert (place, EVIL) in outline.texts
    assert ("strong", "pbcs") in outline.texts
    assert [attributes["alt"] for tag, attributes in outline.tags if tag == "img"] == [
        "Outer loss",
        EVIL,
    ]


def test_page_needs_nothing_else(tmp_path):
    page = write(tmp_path / "report.html")
    assert not re.search(r"https?:|//\w+\.|@import|url\(", page.split("<body>")[0])
    assert not re.search(r"https?:", page)
    references = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(references) == 3 and all(link.startswith("data:") for link in references)


def test_pictures_are_png(tmp_path):
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", write(tmp_path / "report.html"))
    assert len(pictures) == 2
    for picture in pictures:
        png = base64.b64decode(picture, validate=True)
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert np.ptp(imread(io.BytesIO(png))[..., :3]) > 0.5


def test_equal_runs_are_equal_pages(tmp_path):
    assert write(tmp_path / "a.html") == write(tmp_path / "b.html")


def test_a_failure_midway_keeps_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    old = write(path)

    def fail(*_, **__):
        raise RuntimeError("midway")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError):
        write(path, "new")
    assert path.read_text(encoding="utf-8") == old
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_page_of_facts_only(tmp_path):
    write_report(tmp_path / "a.html", "Facts", [("seed", 3)], [])
    page = (tmp_path / "a.html").read_text()
    assert "<dd>3</dd>" in page and "<table" not in page and "<img" not in page
    assert 'class="banner"' not in page


def test_a_fact_may_lead_to_a_file_and_a_long_one_has_a_line_of_its_own(tmp_path):
    facts = [("Indices", Cell("the file", link="a b.npz")), ("Command", "python " + "x" * 60)]
    write_report(tmp_path / "a.html", "Facts", facts, [])
    page = (tmp_path / "a.html").read_text()
    assert '<dd><a href="a%20b.npz">the file</a></dd>' in page
    assert page.count('<div class="wide"><dt>') == 1


def test_entries_keep_their_order_and_tables_become_no_picture(tmp_path):
    entries = [
        ("First", "", column_table({"index": [1]})),
        ("Second", "", outer_loss([1, 2], [2.0, 1.0])),
        ("Third", "Said above it.", column_table({"index": [1]})),
    ]
    write_report(tmp_path / "a.html", "t", [], entries)
    outline = Outline((tmp_path / "a.html").read_text())
    assert [text for tag, text in outline.texts if tag == "h2"] == ["First", "Second", "Third"]
    assert [text for tag, text in outline.texts if tag == "p"] == ["Said above it."]
    save_all(entries, tmp_path / "figures")
    assert os.listdir(tmp_path / "figures") == ["second.png"]
