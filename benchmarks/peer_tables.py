"""What `benchmarks.peers` prints: tables whose best is bold, and how often a method is first."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measure
from benchmarks.peer_methods import AUTO

JUDGES = ("network", "logistic")
CLOCKS = {"seconds": "seconds", "processor": "processor seconds"}
VALIDATION = "validation set alone"
"""A reference that chooses nothing: it is never bold, and never first."""
Found = Mapping[str, Any]
"""Rows by cell, method and seed."""


class Score(NamedTuple):
    """The mean over seeds and its standard error, which one seed does not have."""

    mean: float
    error: float | None


def score(rows: Sequence[float]) -> Score:
    """Of one value per seed.

    >>> score([0.25, 0.75])
    Score(mean=0.5, error=0.25)
    """
    error = float(np.std(rows, ddof=1) / np.sqrt(len(rows))) if len(rows) > 1 else None
    return Score(float(np.mean(rows)), error)


def _rows(found: Found, cell: str, method: str, seeds: int) -> list[dict[str, Any]]:
    """Those of the first `seeds` seeds that were measured."""
    by_seed = found.get(cell, {}).get(method, {})
    return [by_seed[str(seed)] for seed in range(seeds) if str(seed) in by_seed]


def scores(found: Found, cell: str, judge: str, seeds: int) -> dict[str, Score]:
    """Of the methods that were measured and did not fail for any seed."""
    by_method = {method: _rows(found, cell, method, seeds) for method in found.get(cell, {})}
    return {
        method: score([row[judge] for row in rows])
        for method, rows in by_method.items()
        if len(rows) == seeds and all(judge in row for row in rows)
    }


def table(
    found: Found,
    cells: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    uses_validation: Mapping[str, bool] | None = None,
) -> str:
    """One row per method; accuracy in percent, the best of each column in bold, and seconds."""
    columns = [(cell, judge) for cell in cells for judge in JUDGES]
    known = {column: scores(found, *column, seeds) for column in columns}
    lines = []
    for method in methods:
        rows = [row for cell in cells for row in _rows(found, cell, method, seeds)]
        if not rows and method in (AUTO, VALIDATION):
            continue  # not there yet, or no validation set in these cells
        line = [method]
        if uses_validation is not None:
            line.append("yes" if method == VALIDATION or uses_validation[method] else "")
        line += [_cell(method, known[column], found, column[0], seeds) for column in columns]
        for clock in CLOCKS:
            seconds = [row[clock] for row in rows if clock in row]
            line.append(f"{np.mean(seconds):.1f}" if seconds else "")
        lines.append(line)
    heads = [f"{cell.split(', ')[2]}, {judge}" for cell, judge in columns]
    middle = [] if uses_validation is None else ["validation set"]
    return measure.markdown(["method", *middle, *heads, *CLOCKS.values()], lines)


def _cell(method: str, known: Mapping[str, Score], found: Found, cell: str, seeds: int) -> str:
    rows = _rows(found, cell, method, seeds)
    if method not in known:
        if any("failed" in row for row in rows):
            return "failed"
        return "" if method == VALIDATION else f"{len(rows)} seeds" if rows else "not installed"
    own = known[method]
    text = f"{100 * own.mean:.1f}"
    if own.error is not None:
        text += f" ± {100 * own.error:.1f}"
    best = max((s.mean for m, s in known.items() if m != VALIDATION), default=own.mean)
    return f"**{text}**" if own.mean == best and method != VALIDATION else text


def verdict(found: Found, cells: Sequence[str], method: str, seeds: int) -> str:
    """In how many cells a method is first, or within one standard error of the first."""
    near, asked = 0, 0
    for cell in cells:
        for judge in JUDGES:
            known = scores(found, cell, judge, seeds)
            known.pop(VALIDATION, None)
            if method in known:
                asked += 1
                first = max(known.values(), key=lambda s: s.mean)
                near += known[method].mean >= first.mean - (first.error or 0.0)
    if not asked:
        return f"{method}: not measured."
    return (
        f"{method} is first or within one standard error of the first in {near} of {asked} cells "
        "(data x corruption x judge)."
    )
