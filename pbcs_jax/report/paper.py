"""Every figure and table of the paper: what was published, and what runs have measured.

`paper.json` has the published values. `recorded.json` has what is committed in
`benchmarks/results/`; `python -m benchmarks.pages` writes it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from pbcs_jax.report.folders import Run
from pbcs_jax.report.tables import accuracy_text

LIBRARY = "pbcs"
NOT_RUN = "not run"
_NO_NUMBER, _SMOKE = "figure", "a smoke run"


class Found(NamedTuple):
    """What was measured in one setting.

    Attributes:
      source: where it stands.
      link: to the run in the book; empty if it is not there.
      command: that regenerates it.
      keys: settings, and `experiment`, `dataset`, `size`.
      methods: `{name: {metric: {"mean", "std", "runs"}}}`, fractions.
      about: seeds and sizes, in words.
      warning: that the run is too short, for example.
    """

    source: str
    link: str
    command: str
    keys: dict[str, Any]
    methods: Mapping[str, Mapping[str, Any]]
    about: str
    warning: str = ""


class Measured(NamedTuple):
    """A value of a row, and where it is from."""

    text: str
    about: str
    link: str
    is_smoke: bool = False


class Line(NamedTuple):
    """A row of a table: one setting, one method or the best of several, and one measurement."""

    setting: str
    method: str
    published: str
    measured: Measured | None
    command: str


class Item(NamedTuple):
    """A figure or a table of the paper."""

    name: str
    caption: str
    lines: list[Line]


def items(runs: Sequence[Run], links: Mapping[str, str]) -> list[Item]:
    """All figures and tables, with what these runs and the committed results have measured.

    Args:
      runs: of a folder.
      links: to each run, by its name.
    """
    found = [*from_runs(runs, links), *recorded()]
    return [_item(own, found) for own in _read("paper.json")["items"]]


def recorded() -> list[Found]:
    """What is committed in `benchmarks/results/`."""
    return [Found(**one, link="") for one in _read("recorded.json")["found"]]


def from_runs(runs: Iterable[Run], links: Mapping[str, str]) -> list[Found]:
    """Runs that differ in their seed alone are one setting."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if not run.is_sweep and run.summary.get("methods"):
            settings = {k: v for k, v in run.settings.items() if k != "seed"}
            place = run.sweep or run.name  # two runs of one config remain two
            groups.setdefault(json.dumps([place, settings], sort_keys=True), []).append(run)
    return [_together(own, links) for own in groups.values()]


def _together(runs: Sequence[Run], links: Mapping[str, str]) -> Found:
    first, summary = runs[0], runs[0].summary
    size = summary.get("coreset_size", summary.get("num_inputs", summary.get("memory_size")))
    keys = first.settings | {
        "experiment": summary.get("experiment"),
        "dataset": (summary.get("dataset") or {}).get("name"),
        "size": size,
    }
    seeds = sorted({run.summary.get("seed", 0) for run in runs})
    words = "seeds" if len(seeds) > 1 else "seed"
    about = f"{words} {', '.join(map(str, seeds))}"
    if size is not None and summary.get("num_choices"):
        about = f"{size:,} of {summary['num_choices']:,}, {about}"
    command = first.origin.get("command") or ""
    return Found(
        first.name,
        links.get(first.name, ""),
        command,
        keys,
        gathered([run.summary["methods"] for run in runs]),
        about,
        _SMOKE if first.banner else "",
    )


def gathered(records: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Of each method and metric the mean over runs; of a single run what it has itself.

    Args:
      records: `methods` of the summary of each run.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in records[0]:
        own = [record[name] for record in records if name in record]
        found[name] = {}
        for metric in own[0]:
            values = [record.get(metric) for record in own]
            means = [v.get("mean") if isinstance(v, Mapping) else v for v in values]
            numbers = [mean for mean in means if isinstance(mean, int | float)]
            if len(numbers) < len(values):
                continue
            whole = len(values) == 1 and isinstance(values[0], Mapping)
            found[name][metric] = values[0] if whole else spread(numbers)
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation and the values themselves."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "runs": list(values)}


def _item(given: Mapping[str, Any], found: Sequence[Found]) -> Item:
    lines = []
    for row in given["rows"]:
        where = given.get("where", {}) | row["where"]
        matching = [one for one in found if _matches(one.keys, where)]
        metric = row.get("metric", given.get("metric", "test_accuracy"))
        published = row.get("published") or dict.fromkeys(row.get("methods", [""]))
        for method, number in published.items():
            lines += _lines(row, method, number, metric, matching)
    return Item(given["name"], given["caption"], lines)


def _matches(keys: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether all hold; a list names several that do."""
    allowed = {key: v if isinstance(v, list) else [v] for key, v in where.items()}
    return all(key in keys and keys[key] in values for key, values in allowed.items())


def _lines(
    row: Mapping[str, Any],
    method: str,
    published: float | None,
    metric: str,
    matching: Sequence[Found],
) -> list[Line]:
    """One row per measurement, or one without; `method` "" is the library's and the best other."""
    number = _NO_NUMBER if published is None else f"{published:.2f}"
    command = row["command"].replace("METHOD", method)
    start = row["setting"], method or "PBCS; best other", number
    lines = []
    for one in matching:
        text = one.source if metric == "none" else _text(one, method, metric)
        if text and (one.link or metric != "none"):
            about = one.about + (f", {one.warning}" if one.warning else "")
            measured = Measured(text, about, one.link, one.warning == _SMOKE)
            lines.append(Line(*start, measured, one.command or command))
    return lines or [Line(*start, None, command)]


def _text(one: Found, method: str, metric: str) -> str:
    """What a setting has of a method; empty if it has nothing."""
    if method:
        return _number(one.methods.get(method, {}), metric)
    own = _number(one.methods.get(LIBRARY, {}), metric)
    others = {
        name: record[metric]["mean"]
        for name, record in one.methods.items()
        if name not in (LIBRARY, "whole") and (record.get(metric) or {}).get("mean") is not None
    }
    if not own or not others:
        return own
    best = max(others, key=others.__getitem__)
    return f"{own}; {best} {_number(one.methods[best], metric)}"


def _number(record: Mapping[str, Any], metric: str) -> str:
    value = record.get(metric)
    if metric == "class_gap" and not value:
        parts = [record.get(key) for key in ("largest_class", "smallest_class", "coreset_size")]
        if all(parts):
            largest, smallest, size = (part["mean"] for part in parts if part)
            value = {"mean": (largest - smallest) / size}
    if not value or value.get("mean") is None:
        return ""
    if metric == "seconds":
        return f"{value['mean']:.1f} s"
    return accuracy_text({"test_accuracy": value})


def _read(name: str) -> dict[str, Any]:
    return json.loads(resources.files("pbcs_jax.report").joinpath(name).read_text("utf-8"))
