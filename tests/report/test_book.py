"""The book shows every finished run, names what it cannot show, and every link of it works."""

import importlib
import io
import json
import re
import shlex
import stat
from pathlib import Path
from urllib.parse import unquote

import pytest
from PIL import Image
from test_page import EVIL, Outline

from pbcs_jax.experiments import config as config_lib
from pbcs_jax.report import __main__ as command
from pbcs_jax.report import paper
from pbcs_jax.report.book import write_book
from pbcs_jax.report.files import digest, write_json, write_record
from pbcs_jax.report.folders import find
from pbcs_jax.report.page import banner_of, write_report

SETTINGS = {
    "seed": 0,
    "noise": {"kind": "symmetric", "rate": 0.5},
    "imbalance": {"factor": 1.0},
    "methods": ["pbcs", "uniform"],
}
DATA = {"name": "mnist", "source": "bundled", "num_train": 1000, "num_test": 1000}


def methods(mean, other="uniform"):
    spread = {"mean": mean, "std": 0.01, "runs": [mean - 0.01, mean + 0.01]}
    low = {"mean": 0.4, "std": 0.02, "runs": [0.38, 0.42]}
    return {
        "pbcs": {"test_accuracy": spread, "seconds": 3.0, "wrong_labels": 0.1},
        other: {"test_accuracy": low, "seconds": 0.1, "wrong_labels": 0.5},
    }


def make_run(folder, mean=0.8, other="uniform", banner="", **changes):
    """The files of a finished run, as `experiments` writes them."""
    picture = io.BytesIO()
    Image.new("RGB", (4, 3)).save(picture, format="png")
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "outer_loss.png").write_bytes(picture.getvalue())
    write_report(folder / "report.html", "run", [], [], banner)
    made_by = {"command": f"python launch.py --config=x --workdir={folder.name}"}
    write_record(folder / "config.json", {"config": SETTINGS | changes, **made_by})
    files = {name: digest(folder / name) for name in ("report.html", "figures/outer_loss.png")}
    summary = {"experiment": "summarization", "dataset": DATA, "coreset_size": 100}
    summary |= {"num_choices": 1000, "seed": (SETTINGS | changes)["seed"], "seconds": 9.0}
    write_record(
        folder / "summary.json", summary | {"methods": methods(mean, other), "files": files}
    )


def make_sweep(folder):
    for seed in (0, 1):
        make_run(folder / "runs" / "noise.rate=0.5" / f"seed={seed}", 0.8 + seed / 50, seed=seed)
    write_record(folder / "config.json", {"config": SETTINGS, "command": None})
    point = {
        name: {"test_accuracy": r["test_accuracy"], "seconds": 1.0}
        for name, r in methods(0.81).items()
    }
    summary = {"experiment": "summarization", "dataset": DATA, "seeds": [0, 1], "seconds": 18.0}
    write_json(
        folder / "summary.json", summary | {"points": {"noise.rate=0.5": {"methods": point}}}
    )


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    root = tmp_path_factory.mktemp("book") / "runs"
    make_run(root / "[bold] a#b?", other=EVIL, banner="This is <short>.", model="<!-- <script>")
    make_sweep(root / "sweep")
    assert len(write_book(root, root / "book.html")[0]) == 4
    return root / "book.html"


def test_every_internal_link_works(book):
    outline = Outline(re.sub("<br>", "", book.read_text("utf-8")))
    assert not outline.open
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    links = [attrs["href"] for tag, attrs in outline.tags if tag == "a"]
    assert len(links) > 30
    for link in links:
        if link.startswith("#"):
            assert link[1:] in ids, link
        else:
            assert (book.parent / unquote(link)).is_file(), link
    shown = [attrs["src"] for tag, attrs in outline.tags if tag == "img"]
    assert len(shown) == 3 and all(src.startswith("data:image/png;base64,") for src in shown)


def test_names_are_text_and_nothing_else(book):
    page = book.read_text("utf-8")
    assert '<script>alert("1")' not in page and "&lt;script&gt;" in page
    assert "[bold] a#b?" in page and "This is &lt;short&gt;." in page
    outline = Outline(re.sub("<br>", "", page))
    assert [tag for tag, _ in outline.tags].count("script") == 2
    (data,) = (text for tag, text in outline.texts if tag == "script" and text.startswith("{"))
    known = json.loads(data)
    assert [run["name"] for run in known.values()][:2] == ["[bold] a#b?", "sweep"]
    assert known["run-0"]["accuracy"][EVIL] == "40.00 ± 2.00"
    assert known["run-0"]["settings"]["noise.rate"] == "0.5"
    assert known["run-0"]["settings"]["model"] == '"<!-- <script>"' and "<!--" not in page


def test_the_papers_rows_have_what_was_measured_and_are_never_empty(book):
    runs, _ = find(book.parent)
    items = paper.items(runs, {run.name: "#here" for run in runs})
    lines = [line for item in items for line in item.lines]
    assert all(line.setting and line.published and "python " in line.command for line in lines)
    (noise,) = (item for item in items if item.name == "Figure 1, MNIST, symmetric noise")
    own = [line.measured for line in noise.lines if line.measured and line.measured.link]
    assert [one.text for one in own] == [
        "80.00 ± 1.00; " + EVIL + " 40.00 ± 2.00",
        "81.00 ± 1.00; uniform 40.00 ± 0.00",
    ]
    assert own[0].about == "100 of 1,000, seed 0, a smoke run"
    assert own[1].about == "100 of 1,000, seeds 0, 1"
    (table,) = (item for item in items if item.name == "Table 1")
    assert len({(line.setting, line.method) for line in table.lines}) == 54
    page = book.read_text("utf-8")
    assert 'data-name="measured">not run</td>' in page and "<td></td>" not in page


def test_what_is_recorded_stands_beside_the_published_values():
    found = {
        (item.name, line.setting, line.method): line
        for item in paper.items([], {})
        for line in item.lines
    }
    line = found["Table 1", "PermMNIST, 20 % noise", "pbcs"]
    assert line.published == "74.26" and line.measured is not None
    assert line.command.startswith("python launch.py --config=configs/permmnist.py:noise")


def test_the_commands_of_the_paper_name_what_there_is():
    commands = {line.command for item in paper.items([], {}) for line in item.lines}
    for text in commands:
        *_, first = [a for a in shlex.split(text) if a.startswith("--config=")] or [""]
        if not first:
            assert text == "python -m benchmarks.baselines"
            continue
        file, _, preset = first.removeprefix("--config=").partition(":")
        module = importlib.import_module(f"pbcs_jax.configs.{Path(file).stem}")
        known = config_lib.flatten(module.get_config(preset or None))
        for argument in shlex.split(text):
            if argument.startswith("--config."):
                assert argument.removeprefix("--config.").partition("=")[0] in known, text


def test_what_is_damaged_or_unfinished_has_one_line_and_the_book_is_built(tmp_path, capsys):
    make_run(tmp_path / "good")
    for name in ("unfinished", "truncated", "other", "figure", "no picture", "shape", "nan"):
        make_run(tmp_path / name)
    (tmp_path / "unfinished" / "summary.json").unlink()
    config = tmp_path / "truncated" / "config.json"
    config.write_text(config.read_text()[:50])
    summary = tmp_path / "other" / "summary.json"
    summary.write_text(summary.read_text().replace("0.8", "0.9"))
    (tmp_path / "figure" / "figures" / "outer_loss.png").write_bytes(b"\x89PNG\r\n\x1a\nother")
    (tmp_path / "no picture" / "figures" / "more.png").write_bytes(b"text")
    write_record(tmp_path / "shape" / "summary.json", {"methods": [], "dataset": 3})
    write_json(tmp_path / "nan" / "summary.json", {"points": {"a": {"methods": {"b": 4}}}})
    (tmp_path / "nothing").mkdir()
    assert command.main([str(tmp_path)]) == 0
    out, errors = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in errors.splitlines())
    page = (tmp_path / "book.html").read_text("utf-8")
    assert out.startswith("3 runs and sweeps: ") and len(errors.splitlines()) == 7
    assert lines["unfinished"] == "it is not finished: it has no summary.json"
    assert lines["truncated"].startswith("config.json is damaged")
    assert lines["other"].startswith("summary.json is damaged (its checksum is another")
    assert lines["figure"] == "figures/outer_loss.png is missing or was changed"
    assert lines["no picture"] == "figures/more.png is no picture"
    assert {"shape", "nan"} <= set(lines)
    assert all(page.count(f"<li>{name}: ") == 1 for name in lines)


def test_an_empty_folder_gives_a_book_of_what_is_recorded(tmp_path):
    runs, unread = write_book(tmp_path, tmp_path / "out" / "book.html")
    assert not runs and not unread
    assert "No finished run was found." in (tmp_path / "out" / "book.html").read_text("utf-8")


def test_a_mistake_on_the_command_line_is_one_line(tmp_path, capsys):
    assert command.main([str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.endswith("is not there: give a folder with runs\n")
    (tmp_path / "file").write_text("")
    assert command.main([str(tmp_path), f"--out={tmp_path / 'file' / 'book.html'}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_cannot_be_opened_is_named(tmp_path):
    closed = tmp_path / "closed"
    make_run(closed)
    closed.chmod(0)
    try:
        _, unread = find(tmp_path)
    finally:
        closed.chmod(stat.S_IRWXU)
    assert not unread or "cannot be opened" in unread[0].why  # root opens everything


def test_the_banner_of_a_page_is_read_back(tmp_path):
    for text in ("", EVIL, "This is a smoke run: too few steps."):
        write_report(tmp_path / "page.html", "t", [], [], text)
        assert banner_of((tmp_path / "page.html").read_text("utf-8")) == text
