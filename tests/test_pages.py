"""No number in a table of docs/results is typed: each is what the committed JSON says."""

import doctest
import re

import pytest

from benchmarks.pages import replay, shared
from benchmarks.pages import write as pages


def test_tables_and_the_book_are_what_the_committed_results_say(capsys):
    assert pages.main(["--check"]) == 0, capsys.readouterr().out


def test_every_table_stands_on_a_page():
    texts = "".join(page.read_text("utf-8") for page in pages.PAGES.glob("*.md"))
    assert set(re.findall(r"<!-- begin ([\w-]+) -->", texts)) == set(pages.TABLES)


def test_a_changed_number_differs_and_is_written_back(monkeypatch, tmp_path, capsys):
    page = tmp_path / "regression.md"
    text = (pages.PAGES / "regression.md").read_text("utf-8")
    page.write_text(text.replace("0.825", "0.925"), "utf-8")
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "RECORDED", tmp_path / "recorded.json")
    assert pages.main(["--check"]) == 1
    assert "regression.md: differs" in capsys.readouterr().out
    assert pages.main([]) == 0 and page.read_text("utf-8") == text
    assert pages.main(["--check"]) == 0


@pytest.mark.parametrize("text", ["<!-- begin no/name -->\n<!-- end -->", "<!-- begin outer -->\n"])
def test_a_mark_that_is_none_is_an_error(text):
    with pytest.raises(ValueError, match="begin NAME"):
        pages.rewritten(text)


def test_examples_in_docstrings():
    for module in (shared, replay, pages):
        assert doctest.testmod(module).failed == 0
