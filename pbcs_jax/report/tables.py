"""One table of methods, for the terminal, for Markdown and for HTML.

`methods` is that part of summary.json: `{name: {"test_accuracy": {"mean", "std", "runs"},
"seconds", ...extras}}` with accuracies and other fractions in 0..1.
"""

import html
import math
import textwrap
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

Methods = Mapping[str, Mapping[str, Any]]

REFERENCE = "uniform"
"""The method that the others are compared with."""

_MISSING = "\N{EN DASH}"
_FRACTIONS = frozenset({"wrong_labels"})
"""Extras that are shown in percent."""


class Cell(NamedTuple):
    text: str
    bold: bool = False


class Rows(NamedTuple):
    """Column headers, and one list of as many cells for each method."""

    headers: list[str]
    cells: list[list[Cell]]


def mean_accuracy(record: Mapping[str, Any]) -> float:
    """The mean test accuracy of one method, in percent; NaN if there is none."""
    mean = (record.get("test_accuracy") or {}).get("mean")
    return math.nan if mean is None else 100 * mean


def accuracy_text(record: Mapping[str, Any]) -> str:
    """Mean and standard deviation of the test accuracy of one method, in percent."""
    accuracy = record.get("test_accuracy") or {}
    text = _number(mean_accuracy(record), ".2f")
    # One run has no spread: "± 0.00" would claim a certainty that nobody measured.
    if len(accuracy.get("runs", ())) > 1 and accuracy.get("std") is not None:
        text += f" ± {_number(100 * accuracy['std'], '.2f')}"
    return text


def table_rows(methods: Methods) -> Rows:
    """The content of the table, in the order given; the most accurate method is bold."""
    means = {name: mean_accuracy(record) for name, record in methods.items()}
    finite = [mean for mean in means.values() if math.isfinite(mean)]
    compared = REFERENCE in methods and len(methods) > 1
    extras = _extras(methods)

    headers = ["method", "test accuracy, %"]
    headers += [f"vs {REFERENCE}, points"] * compared
    headers += ["seconds"]
    headers += [key.replace("_", " ") + (", %" if key in _FRACTIONS else "") for key in extras]

    cells = []
    for name, record in methods.items():
        best = bool(finite) and means[name] == max(finite)
        row = [Cell(name, best), Cell(accuracy_text(record), best)]
        if compared:
            difference = math.nan if name == REFERENCE else means[name] - means[REFERENCE]
            row.append(Cell(_number(difference, "+.2f")))
        row.append(Cell(_number(record.get("seconds"), ",.1f")))
        row += [Cell(_extra(record.get(key), key in _FRACTIONS)) for key in extras]
        cells.append(row)
    return Rows(headers, cells)


def terminal_table(methods: Methods, title: str) -> Table:
    """The table for `rich.print`."""
    rows = table_rows(methods)
    table = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, header in enumerate(rows.headers):
        # Headers on several lines, as narrow as their column: the table fits into 80 characters.
        width = max(
            len(text) for text in [*header.split(), *(row[index].text for row in rows.cells)]
        )
        lines = textwrap.fill(header, width)
        table.add_column(Text(lines), justify="right" if index else "left", vertical="bottom")
    for row in rows.cells:
        # Text, not str: a name with square brackets is no markup.
        table.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in row))
    return table


def markdown_table(methods: Methods) -> str:
    """The table as GitHub Markdown, ending in a line break."""
    rows = table_rows(methods)

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |\n"

    rule = ["---"] + ["---:"] * (len(rows.headers) - 1)
    body = [[f"**{cell.text}**" if cell.bold else cell.text for cell in row] for row in rows.cells]
    return "".join(map(line, [rows.headers, rule, *body]))


def html_table(methods: Methods) -> str:
    """The table as an escaped HTML fragment."""
    rows = table_rows(methods)
    head = "".join(f'<th scope="col">{html.escape(header)}</th>' for header in rows.headers)
    body = "\n".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in rows.cells)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    return f"<td><strong>{text}</strong></td>" if cell.bold else f"<td>{text}</td>"


def _extras(methods: Methods) -> list[str]:
    """Further entries that any method has, in order of appearance, if they fit into a cell."""
    fits = {
        key: isinstance(value, str | Real) or (isinstance(value, Mapping) and "mean" in value)
        for record in methods.values()
        for key, value in record.items()
        if key not in ("test_accuracy", "seconds") and value is not None
    }
    return [key for key, fitting in fits.items() if fitting]


def _extra(value: Any, percent: bool) -> str:
    if isinstance(value, Mapping):
        spread = f" ± {_extra(value['std'], percent)}" if value.get("std") is not None else ""
        return _extra(value.get("mean"), percent) + spread
    if isinstance(value, str | bool):
        return str(value)
    if percent and value is not None:
        return _number(100 * value, ".1f")
    return _number(value, ",d" if isinstance(value, Integral) else ".4g")


def _number(value: Any, form: str) -> str:
    return _MISSING if value is None or not math.isfinite(value) else format(value, form)
