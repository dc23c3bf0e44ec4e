"""report.html: one file that can be mailed, archived and opened anywhere, without a network."""

import base64
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from pbcs_jax.report.figures import to_png
from pbcs_jax.report.files import write_atomically
from pbcs_jax.report.inputs import Film
from pbcs_jax.report.tables import Rows, html_table

Entry = tuple[str, str, Figure | Film]
"""`(title, caption, figure)`."""

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --muted: #59636e; --line: #d8dee4;
  --ground: #ffffff; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --muted: #9aa4af;
  --line: #353b43; --ground: #14171c; --panel: #1d2127; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 56rem; background: var(--ground);
  color: var(--text); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { margin: 0 0 1.25rem; font-size: 1.75rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .75rem; font-size: 1.2rem; line-height: 1.3; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .9rem 1.5rem;
  margin: 0; padding: 1rem 1.25rem; background: var(--panel); border-radius: 8px; }
dt { color: var(--muted); font-size: .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { padding: .45rem .75rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--muted); font-weight: 500; font-size: .8rem; white-space: normal;
  vertical-align: bottom; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
figure { margin: 0; }
img { display: block; width: 100%; height: auto; padding: 10px; background: #ffffff;
  border: 1px solid var(--line); border-radius: 8px; }
img.film { width: auto; image-rendering: pixelated; }
figcaption { margin-top: .6rem; color: var(--muted); font-size: .9rem; }
"""


def write_report(
    path: str | os.PathLike[str],
    title: str,
    intro: Sequence[tuple[str, object]],
    tables: Mapping[str, Rows],
    figures: Sequence[Entry],
) -> None:
    """Writes the page: facts, tables, figures; all text is escaped.

    Args:
      path: The HTML file; it appears whole or not at all.
      title: The heading, and the title of the browser tab.
      intro: Facts about the run as `(label, value)`.
      tables: By their headings.
      figures: `(title, caption, figure)` in the order of the page.
    """
    facts = "\n".join(
        f"<div><dt>{html.escape(label)}</dt><dd>{html.escape(str(value))}</dd></div>"
        for label, value in intro
    )
    sections = [f"<dl>\n{facts}\n</dl>"] if facts else []
    sections += [
        f'<h2>{html.escape(heading)}</h2>\n<div class="scroll">\n{html_table(rows)}\n</div>'
        for heading, rows in tables.items()
    ]
    sections += [_figure(*entry) for entry in figures]
    name = html.escape(title)
    # The empty icon keeps a web server's log free of requests for favicon.ico.
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{name}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{name}</h1>
{chr(10).join(sections)}
</main>
</body>
</html>
"""
    write_atomically(path, page)


def save_all(figures: Sequence[Entry], folder: Path) -> None:
    """Writes each figure into a file of its own, named after its title."""
    for title, _, figure in figures:
        name = "".join(c if c.isalnum() else "_" for c in title.lower())
        kind, content = _encoded(figure)
        write_atomically(folder / f"{name}.{kind}", content)


def _encoded(figure: Figure | Film) -> tuple[str, bytes]:
    """The kind of picture, and its bytes."""
    return ("gif", figure.gif) if isinstance(figure, Film) else ("png", to_png(figure))


def _figure(title: str, caption: str, figure: Figure | Film) -> str:
    name = html.escape(title)
    kind, content = _encoded(figure)
    data = base64.b64encode(content).decode("ascii")
    small = ' class="film"' if kind == "gif" else ""
    return f"""<section>
<h2>{name}</h2>
<figure>
<img alt="{name}"{small} src="data:image/{kind};base64,{data}">
<figcaption>{html.escape(caption)}</figcaption>
</figure>
</section>"""
