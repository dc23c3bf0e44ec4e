"""report.html: one file that can be mailed, archived and opened anywhere, without a network."""

import html
import os
import re
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from matplotlib.figure import Figure

from pbcs_jax.report.figures import to_png
from pbcs_jax.report.files import write_atomically
from pbcs_jax.report.inputs import Film
from pbcs_jax.report.tables import Rows, as_cell, data_url, html_content, html_table

Content = Figure | Film | Rows | Path
"""A figure, a table, or the file of a PNG or a GIF."""

Entry = tuple[str, str, Content]
"""`(title, caption, content)`."""

Fact = tuple[str, object]
"""`(label, value)`; a value may be a `Cell` with a link."""

_DRAWN: WeakKeyDictionary[Figure, bytes] = WeakKeyDictionary()
"""PNGs of figures that are shown."""

_BANNER = '<p class="banner" role="note">{}</p>'
_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --muted: #59636e; --line: #d8dee4;
  --ground: #ffffff; --panel: #f6f8fa; --link: #0969da; --warn: #7a4b00; --warning: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --muted: #9aa4af;
  --line: #353b43; --ground: #14171c; --panel: #1d2127; --link: #6cb0ff; --warn: #f2cc7e;
  --warning: #3a2f14; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 56rem; background: var(--ground);
  color: var(--text); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { margin: 0 0 1.25rem; font-size: 1.75rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .75rem; font-size: 1.2rem; line-height: 1.3; }
a { color: var(--link); }
.banner { margin: 0 0 1.25rem; padding: .7rem 1.25rem; border-radius: 8px; font-weight: 600;
  color: var(--warn); background: var(--warning); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .9rem 1.5rem;
  margin: 0; padding: 1rem 1.25rem; background: var(--panel); border-radius: 8px; }
dt { color: var(--muted); font-size: .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { grid-column: 1 / -1; }
.wide dd { font: .85rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
.scroll { overflow: auto; max-height: 34rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { padding: .45rem .75rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th { position: sticky; top: 0; color: var(--muted); background: var(--ground); font-weight: 500;
  font-size: .8rem; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
th button { all: unset; cursor: pointer; }
th button:hover { color: var(--text); }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort] { color: var(--text); }
th[aria-sort=ascending] button::after { content: " \\25b2"; }
th[aria-sort=descending] button::after { content: " \\25bc"; }
figure { margin: 0; }
img { display: block; width: 100%; height: auto; padding: 10px; background: #ffffff;
  border: 1px solid var(--line); border-radius: 8px; }
img.film { width: auto; image-rendering: pixelated; }
td img { width: 2.75rem; margin-left: auto; padding: 0; border-radius: 4px;
  image-rendering: pixelated; }
figcaption, .caption { color: var(--muted); font-size: .9rem; }
figcaption { margin-top: .6rem; }
.caption { margin: 0 0 .75rem; }
@media print { .scroll { max-height: none; } th { position: static; } }
"""

# A click on a header sorts by that column, a second click the other way round. What is no number
# and no text, a picture, has no order; what is missing stays at the end.
_SCRIPT = """
const number = /^[-+]?(\\d[\\d,]*\\.?\\d*|\\.\\d+)(e[-+]?\\d+)?( \\u00b1 .*)?$/i;
const names = new Intl.Collator(undefined, {numeric: true});
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const text = row => row.cells[column].textContent.trim();
    const missing = row => ["", "\\u2013"].includes(text(row));
    const filled = [...body.rows].filter(row => !missing(row));
    if (!filled.length) return;
    const value = row => parseFloat(text(row).replaceAll(",", ""));
    const compare = filled.every(row => number.test(text(row)))
      ? (a, b) => value(a) - value(b) : (a, b) => names.compare(text(a), text(b));
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) =>
        missing(a) - missing(b) || (missing(a) ? 0 : sign * compare(a, b))));
    });
  });
}
"""


def write_report(
    path: str | os.PathLike[str],
    title: str,
    facts: Sequence[Fact],
    entries: Sequence[Entry],
    banner: str = "",
) -> None:
    """Writes the page: facts, then figures and tables, which can be sorted; all text is escaped.

    Args:
      path: The HTML file; it appears whole or not at all.
      title: The heading, and the title of the browser tab.
      facts: About the run.
      entries: In the order of the page.
      banner: A warning at the top.
    """
    sections = [_BANNER.format(html.escape(banner))] if banner else []
    if facts:
        sections.append(facts_list(facts))
    sections += [f"<section>\n{entry_html(*entry)}\n</section>" for entry in entries]
    heading = f"<h1>{html.escape(title)}</h1>"
    write_atomically(path, document(title, "\n".join([heading, *sections])))


def document(title: str, body: str, style: str = "", script: str = "") -> str:
    """A whole page, with what is needed to read it and to sort its tables.

    Args:
      title: of the browser tab.
      body: HTML of the page.
      style: more CSS.
      script: more JavaScript.
    """
    # The empty icon keeps a web server's log free of requests for favicon.ico.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{_STYLE}{style}</style>
</head>
<body>
<main>
{body}
</main>
<script>{_SCRIPT}{script}</script>
</body>
</html>
"""


def banner_of(page: str) -> str:
    """The warning at the top of a page that `write_report` wrote; empty if it has none."""
    before, after = map(re.escape, _BANNER.split("{}"))
    found = re.search(f"^{before}(.*){after}$", page, re.MULTILINE)
    return html.unescape(found[1]) if found else ""


def save_all(entries: Sequence[Entry], folder: Path) -> None:
    """Writes each figure into a file of its own, named after its title."""
    for title, _, content in entries:
        if not isinstance(content, Rows | Path):
            name = "".join(c if c.isalnum() else "_" for c in title.lower())
            kind, encoded = _encoded(content)
            write_atomically(folder / f"{name}.{kind}", encoded)


def duration(seconds: float) -> str:
    """The time in words.

    >>> duration(7.25), duration(75), duration(7300)
    ('7.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def facts_list(facts: Sequence[Fact]) -> str:
    """Facts as an escaped HTML fragment."""
    return "<dl>\n{}\n</dl>".format("\n".join(_fact(*fact) for fact in facts))


def _fact(label: str, value: object) -> str:
    cell = as_cell(value)
    wide = ' class="wide"' if len(cell.text) > 60 else ""  # such as a command
    content = html_content(cell)
    return f"<div{wide}><dt>{html.escape(label)}</dt><dd>{content}</dd></div>"


def entry_html(title: str, caption: str, content: Content, level: int = 2) -> str:
    """Heading, caption and figure or table as an escaped HTML fragment.

    Args:
      title: of the heading.
      caption: below a figure, above a table.
      content: figure or table.
      level: of the heading.
    """
    name, text = html.escape(title), html.escape(caption)
    if isinstance(content, Rows):
        above = f'<p class="caption">{text}</p>\n' if text else ""
        inside = f'{above}<div class="scroll">\n{html_table(content)}\n</div>'
    else:
        kind, encoded = _encoded(content)
        small = ' class="film"' if kind == "gif" else ""
        below = f"\n<figcaption>{text}</figcaption>" if text else ""
        inside = f"""<figure>
<img alt="{name}"{small} src="{data_url(kind, encoded)}">{below}
</figure>"""
    return f"<h{level}>{name}</h{level}>\n{inside}"


def _encoded(figure: Figure | Film | Path) -> tuple[str, bytes]:
    """The kind of picture, and its bytes, which are drawn once for the file and for the page."""
    if isinstance(figure, Path):
        return figure.suffix[1:], figure.read_bytes()
    if isinstance(figure, Film):
        return "gif", figure.gif
    if figure not in _DRAWN:
        _DRAWN[figure] = to_png(figure)
    return "png", _DRAWN[figure]
