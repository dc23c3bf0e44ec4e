"""Tables of methods, of a sweep and of plain columns, for the terminal, for Markdown and for HTML.

`methods` is that part of summary.json: `{name: {"test_accuracy": {"mean", "std", "runs"},
"seconds", ...extras}}` with accuracies and other fractions in 0..1.
"""

import base64
import html
import math
import textwrap
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple
from urllib.parse import quote

from rich import box
from rich.table import Table
from rich.text import Text

Methods = Mapping[str, Mapping[str, Any]]

REFERENCE = "uniform"
"""The method that the others are compared with."""

_MISSING = "\N{EN DASH}"
_FRACTIONS = frozenset({"wrong_labels", "class_gap"})
"""Extras that are shown in percent, and of which few are best."""
SECONDS = "processor_seconds"
"""The one metric of a sweep that is no fraction."""


class Cell(NamedTuple):
    """A cell; what follows `bold` is for HTML alone.

    Attributes:
      text: what it says; of a picture, its description.
      bold: whether it stands out.
      link: what the text leads to: a path relative to the page, or `#` and a place on the page.
      picture: a PNG in place of the text.
    """

    text: str
    bold: bool = False
    link: str = ""
    picture: bytes = b""


class Rows(NamedTuple):
    """A table: column headers, and one list of as many cells for each row."""

    headers: list[str]
    cells: list[list[Cell]]


def mean_accuracy(record: Mapping[str, Any]) -> float:
    """The mean test accuracy of one method, in percent; NaN if there is none."""
    mean = (record.get("test_accuracy") or {}).get("mean")
    return math.nan if mean is None else 100 * mean


def accuracy_text(record: Mapping[str, Any]) -> str:
    """Mean and standard deviation of the test accuracy of one method, in percent."""
    return _spread(record.get("test_accuracy"))


def _spread(value: Mapping[str, Any] | None, times: float = 100.0) -> str:
    """Mean and standard deviation of a fraction, in percent."""
    if not value or value.get("mean") is None:
        return _MISSING
    text = _number(times * value["mean"], ".2f")
    # One run has no spread: "± 0.00" would claim a certainty that nobody measured.
    if len(value.get("runs", ())) > 1 and value.get("std") is not None:
        text += f" ± {_number(times * value['std'], '.2f')}"
    return text


def scale(metric: str) -> float:
    """What a metric of a sweep is multiplied by where it is shown: fractions are in percent."""
    return 1.0 if metric == SECONDS else 100.0


def method_table(methods: Methods) -> Rows:
    """The table of one run, methods in the order given; the most accurate one is bold."""
    means = {name: mean_accuracy(record) for name, record in methods.items()}
    finite = [mean for mean in means.values() if math.isfinite(mean)]
    compared = REFERENCE in methods and len(methods) > 1
    extras = _extras(methods)

    headers = ["method", "test accuracy, %"]
    headers += [f"vs {REFERENCE}, points"] * compared
    headers += ["seconds"]
    headers += [key.replace("_", " ") + (", %" if _is_fraction(key) else "") for key in extras]

    cells = []
    for name, record in methods.items():
        best = bool(finite) and means[name] == max(finite)
        row = [Cell(name, best), Cell(accuracy_text(record), best)]
        if compared:
            difference = math.nan if name == REFERENCE else means[name] - means[REFERENCE]
            row.append(Cell(_number(difference, "+.2f")))
        row.append(Cell(_number(record.get("seconds"), ",.1f")))
        row += [Cell(_extra(record.get(key), _is_fraction(key))) for key in extras]
        cells.append(row)
    return Rows(headers, cells)


def sweep_table(points: Mapping[str, Methods], metric: str = "test_accuracy") -> Rows:
    """One metric of a sweep: methods are rows, points are columns, the best is bold.

    Args:
      points: `{column: {method: {metric: {"mean", "std", "runs"}}}}`.
      metric: which; of wrong labels and seconds few are best.
    """
    names = list(dict.fromkeys(name for methods in points.values() for name in methods))
    best = min if metric in (*_FRACTIONS, SECONDS) else max
    columns = []
    for methods in points.values():
        values = {name: methods[name].get(metric) for name in names if name in methods}
        # A point may have nothing of this metric, such as wrong labels where there is no noise.
        top = best((value["mean"] for value in values.values() if value), default=math.nan)
        columns.append(
            [
                Cell(_spread(values.get(name), scale(metric)), _has_mean(values.get(name), top))
                for name in names
            ]
        )
    cells = [
        [Cell(name), *row] for name, row in zip(names, zip(*columns, strict=True), strict=True)
    ]
    return Rows(["method", *points], cells)


def column_table(columns: Mapping[str, Iterable[object]]) -> Rows:
    """Columns of equal length, by their headers; what is no `Cell` becomes one.

    >>> rows = column_table({"index": [1200], "probability": [0.25], "wrong": [True]})
    >>> [cell.text for cell in rows.cells[0]]
    ['1200', '0.2500', 'yes']
    """
    rows = zip(*columns.values(), strict=True)
    return Rows(list(columns), [[as_cell(value) for value in row] for row in rows])


def as_cell(value: Any) -> Cell:
    """A cell as it is, and any other value as text: numbers without separators, lists in a line."""
    if isinstance(value, Cell):
        return value
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and of JAX
        value = value.tolist()
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, list):
        return Cell(", ".join(as_cell(item).text for item in value))
    return Cell(_number(value, ".4f") if isinstance(value, float) else str(value))


def _has_mean(value: Mapping[str, Any] | None, mean: float) -> bool:
    return value is not None and value["mean"] == mean


def terminal_table(rows: Rows, title: str) -> Table:
    """The table for `rich.print`."""
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


def markdown_table(rows: Rows) -> str:
    """The table as GitHub Markdown, ending in a line break."""

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |\n"

    rule = ["---"] + ["---:"] * (len(rows.headers) - 1)
    body = [[f"**{cell.text}**" if cell.bold else cell.text for cell in row] for row in rows.cells]
    return "".join(map(line, [rows.headers, rule, *body]))


def html_table(rows: Rows) -> str:
    """The table as an escaped HTML fragment."""
    head = "".join(f'<th scope="col">{html.escape(header)}</th>' for header in rows.headers)
    body = "\n".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in rows.cells)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _html_cell(cell: Cell) -> str:
    return f"<td>{html_content(cell)}</td>"


def html_content(cell: Cell) -> str:
    """What stands in a cell, as an escaped HTML fragment."""
    content = html.escape(cell.text)
    if cell.picture:
        content = f'<img alt="{content}" src="{data_url("png", cell.picture)}">'
    if cell.link:
        target = cell.link if cell.link.startswith("#") else quote(cell.link)
        content = f'<a href="{html.escape(target)}">{content}</a>'
    return f"<strong>{content}</strong>" if cell.bold else content


def data_url(kind: str, content: bytes) -> str:
    """A picture as the address of itself: the page needs no other file."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _extras(methods: Methods) -> list[str]:
    """Further entries that any method has, in order of appearance, if they fit into a cell."""
    fits = {
        key: isinstance(value, str | Real) or (isinstance(value, Mapping) and "mean" in value)
        for record in methods.values()
        for key, value in record.items()
        if key not in ("test_accuracy", "seconds") and value is not None
    }
    return [key for key, fitting in fits.items() if fitting]


def _is_fraction(key: str) -> bool:
    return key in _FRACTIONS or key.endswith("_accuracy")


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
