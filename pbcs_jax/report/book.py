"""The book: one self-contained page of all finished runs in a folder, beside the paper.

Contents, every figure and table of the paper with published and measured values, each run with its
figures, two runs side by side, and a search; plain JavaScript, no server.
"""

import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from pbcs_jax.errors import UserError
from pbcs_jax.report import paper
from pbcs_jax.report.files import write_atomically
from pbcs_jax.report.folders import CONFIG, PAGE, Run, Unread, find
from pbcs_jax.report.page import Fact, document, duration, entry_html, facts_list
from pbcs_jax.report.tables import (
    Cell,
    Rows,
    accuracy_text,
    column_table,
    mean_accuracy,
    method_table,
    sweep_table,
)

_TITLE = "Book of runs"
_PARTS = {"paper": "The paper", "runs": "Runs", "compare": "Compare", "unread": "Not shown"}


def write_book(
    root: str | os.PathLike[str], path: str | os.PathLike[str]
) -> tuple[list[Run], list[Unread]]:
    """Writes the book of all finished runs and sweeps in a folder.

    Args:
      root: the folder, which is searched at any depth.
      path: the HTML file; it appears whole or not at all.

    Returns:
      The runs that are in the book, and the folders that are not, or not whole.
    """
    root, path = Path(root), Path(path)
    if not root.is_dir():
        raise UserError(f"folder {str(root)!r} is not there: give a folder with runs")
    runs, unread = find(root)
    shown, sections = {}, []
    for number, run in enumerate(runs):
        try:
            sections.append(_section(run, f"run-{number}", path))
            shown[f"run-{number}"] = run
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            unread.append(Unread(run.name, f"it cannot be shown ({type(error).__name__}: {error})"))
    links = {run.name: f"#{key}" for key, run in shown.items()}
    items = paper.items(list(shown.values()), links)
    parts = {
        "paper": "\n".join(_item(number, item) for number, item in enumerate(items)),
        "runs": _list_of_runs(list(shown.values()), links) + "\n".join(sections),
        "compare": _COMPARE,
        "unread": _list_of_unread(unread),
    }
    body = [f"<h1>{_TITLE}</h1>", _navigation(items), _counts(list(shown.values()), items)]
    body += [f'<section id="{k}">\n<h2>{_PARTS[k]}</h2>\n{v}\n</section>' for k, v in parts.items()]
    known = {key: _known(run) for key, run in shown.items()}
    data = json.dumps(known, ensure_ascii=False).replace("</", "<\\/").replace("<!", "<\\u0021")
    body.append(f'<script type="application/json" id="known">{data}</script>')
    own = resources.files("pbcs_jax.report")
    style, script = (own.joinpath(f"book.{kind}").read_text("utf-8") for kind in ("css", "js"))
    write_atomically(path, document(_TITLE, "\n".join(body), style, script))
    return list(shown.values()), unread


_COMPARE = """<p class="caption">Two runs side by side: settings that differ, then all of both.</p>
<div class="choice"><label>Left <select id="left"></select></label>
<label>Right <select id="right"></select></label></div>
<div id="differences"></div>
<div class="sides"><div id="left-side"></div><div id="right-side"></div></div>"""


def _navigation(items: Sequence[paper.Item]) -> str:
    places = "".join(f'<a href="#{key}">{name}</a>' for key, name in _PARTS.items())
    below = "".join(
        f'<li><a href="#item-{number}">{html.escape(item.name)}</a></li>'
        for number, item in enumerate(items)
    )
    return f"""<nav>{places}
<input id="search" type="search" placeholder="Search runs, settings, rows"
 aria-label="Search"><output id="hits" for="search"></output></nav>
<details open><summary>Contents: the paper</summary><ul class="contents">{below}</ul></details>"""


def _counts(runs: Sequence[Run], items: Sequence[paper.Item]) -> str:
    """How much there is, and how much of the paper is measured."""
    lines = [line for item in items for line in item.lines]
    measured = sum(bool(line.measured and not line.measured.is_smoke) for line in lines)
    facts: list[Fact] = [
        ("Sweeps", sum(run.is_sweep for run in runs)),
        ("Runs", sum(not run.is_sweep for run in runs)),
        ("Rows of the paper that are measured", f"{measured} of {len(lines)}"),
        ("Written with", f"pbcs_jax {metadata.version('pbcs_jax')}"),
    ]
    return facts_list(facts)


def _item(number: int, item: paper.Item) -> str:
    """A figure or a table of the paper."""
    heads = ("setting", "method", "published", "measured", "command")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    rows = []
    for line in item.lines:
        measured = _measured(line.measured) if line.measured else paper.NOT_RUN
        texts = [html.escape(t) for t in (line.setting, line.method, line.published)]
        named = zip(heads, (*texts, measured, _command(line.command)), strict=True)
        cells = "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in named)
        rows.append(f'<tr class="find">{cells}</tr>')
    body = "\n".join(rows)
    return f"""<section id="item-{number}" class="item"><h3>{html.escape(item.name)}</h3>
<p class="caption">{html.escape(item.caption)}</p>
<div class="scroll"><table class="paper"><thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div></section>"""


def _command(text: str) -> str:
    """Each argument keeps together, if it fits: a line that ends in `--` is hard to read."""
    return (
        f"<code>{' '.join(f'<span>{html.escape(part)}</span>' for part in text.split(' '))}</code>"
    )


def _measured(one: paper.Measured) -> str:
    text = html.escape(one.text)
    if one.link:
        text = f'<a href="{html.escape(one.link)}">{text}</a>'
    return f"{text} <small>{html.escape(one.about)}</small>"


def _list_of_runs(runs: Sequence[Run], links: Mapping[str, str]) -> str:
    """A table with one row per run."""
    if not runs:
        return '<p class="caption">No finished run was found.</p>'
    columns: dict[str, list[Any]] = {"run": [], "experiment": [], "data": [], "chosen": []}
    columns |= {"seeds": [], "best method": [], "test accuracy, %": []}
    for run in runs:
        summary, best = run.summary, _best(run)
        columns["run"].append(Cell(run.name, link=links[run.name]))
        columns["experiment"].append(str(summary.get("experiment", "-")))
        columns["data"].append(str((summary.get("dataset") or {}).get("name", "-")))
        columns["chosen"].append(_size(run))
        columns["seeds"].append(", ".join(map(str, _seeds(run))))
        columns["best method"].append(best[0])
        columns["test accuracy, %"].append(best[1])
    rows = entry_html("All runs", "", column_table(columns), 3)
    return f'<div class="all">{rows}</div>'


def _best(run: Run) -> tuple[str, str]:
    """The most accurate method of a run; a sweep has none."""
    records = {} if run.is_sweep else run.summary.get("methods", {})
    known = {name: record for name, record in records.items() if mean_accuracy(record) > 0}
    if not known:
        return f"{len(run.summary['points'])} points" if run.is_sweep else "-", "-"
    name = max(known, key=lambda method: mean_accuracy(known[method]))
    return name, accuracy_text(known[name])


def _section(run: Run, key: str, path: Path) -> str:
    """A run, or a sweep: facts, tables and figures; the runs of a sweep are folded."""
    summary, origin = run.summary, run.origin
    facts: list[Fact] = [("Experiment", str(summary.get("experiment", "-")))]
    if summary.get("dataset"):
        facts.append(("Data", f"{summary['dataset']['name']} ({summary['dataset']['source']})"))
    facts += [("Chosen", _size(run)), ("Seeds", ", ".join(map(str, _seeds(run))))]
    if isinstance(summary.get("seconds"), int | float):
        facts.append(("Selecting and judging took", duration(summary["seconds"])))
    facts.append(("Commit", (origin.get("git_commit") or "-")[:12]))
    place = Path(os.path.relpath(run.folder, path.parent))
    for label, name in (("Page of its own", PAGE), ("Settings and versions", CONFIG)):
        if (run.folder / name).is_file():
            facts.append((label, Cell(name, link=f"./{(place / name).as_posix()}")))
    facts.append(("Command", origin.get("command") or "-"))
    parts = [f'<p class="banner" role="note">{html.escape(run.banner)}</p>'] if run.banner else []
    parts.append(facts_list(facts))
    parts += [f"<div>{entry_html(title, '', rows, 4)}</div>" for title, rows in _tables(run)]
    titled = [(file.stem.replace("_", " ").capitalize(), file) for file in run.figures]
    figures = [f"<div>{entry_html(title, '', file, 4)}</div>" for title, file in titled]
    parts += ['<div class="figures">', *figures, "</div>"]
    inside = "\n".join(parts)
    words = html.escape(" ".join(f"{k}={v}" for k, v in run.settings.items()), quote=True)
    name = html.escape(run.name)
    if run.sweep:
        inside = f"<details><summary><h3>{name}</h3></summary>\n{inside}\n</details>"
    else:
        inside = f"<h3>{name}</h3>\n{inside}"
    return f'<section id="{key}" class="run find" data-words="{words}">\n{inside}\n</section>'


def _tables(run: Run) -> list[tuple[str, Rows]]:
    if not run.is_sweep:
        methods = run.summary.get("methods", {})
        return [("Methods", method_table(methods))] if methods else []
    points = {name or "all": point["methods"] for name, point in run.summary["points"].items()}
    metrics = dict.fromkeys(m for p in points.values() for r in p.values() for m in r)
    metrics.pop("seconds", None)
    return [(_of_metric(metric), sweep_table(points, metric)) for metric in metrics]


def _of_metric(name: str) -> str:
    return name.replace("_", " ").capitalize() + ("" if name.endswith("seconds") else ", %")


def _size(run: Run) -> str:
    summary = run.summary
    for key in ("coreset_size", "num_inputs", "memory_size"):
        if isinstance(summary.get(key), int):
            of = summary.get("num_choices")
            return f"{summary[key]:,}" + (f" of {of:,}" if isinstance(of, int) else "")
    return "-"


def _seeds(run: Run) -> list[Any]:
    return list(run.summary.get("seeds", [run.summary.get("seed", "-")]))


def _list_of_unread(unread: Sequence[Unread]) -> str:
    if not unread:
        return '<p class="caption">Every folder was read.</p>'
    lines = [f"<li>{html.escape(one.name)}: {html.escape(one.why)}</li>" for one in unread]
    return f'<ul class="unread">{"".join(lines)}</ul>'


def _known(run: Run) -> dict[str, Any]:
    """What the page compares: name, settings, and the accuracy of each method."""
    records = {} if run.is_sweep else run.summary.get("methods", {})
    accuracy = {name: accuracy_text(record) for name, record in records.items()}
    means = {name: mean_accuracy(record) for name, record in records.items()}
    return {
        "name": run.name,
        "settings": {key: json.dumps(value) for key, value in run.settings.items()},
        "accuracy": accuracy,
        "means": {name: mean for name, mean in means.items() if mean == mean},
    }
