"""Finished runs and sweeps below a folder, as they are read for the book.

Nothing is written here, and nothing raises: what cannot be read is named, with the reason.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pbcs_jax.errors import DamagedError, one_line
from pbcs_jax.report.files import CHECKSUM, digest, read_record, retried
from pbcs_jax.report.page import banner_of

CONFIG, SUMMARY, PAGE = "config.json", "summary.json", "report.html"
_KINDS = {".png": b"\x89PNG\r\n\x1a\n", ".gif": b"GIF8"}


class Run(NamedTuple):
    """A finished run, or a finished sweep.

    Attributes:
      name: its folder, seen from the folder that was searched.
      folder: where it is.
      sweep: the name of the sweep that it is a part of; empty if it is of none.
      settings: `{"noise.rate": 0.5, ...}`, the resolved config.
      origin: command, commit and versions, as far as they are known.
      summary: what is in `summary.json`.
      figures: files of its pictures.
      banner: the warning of its page.
    """

    name: str
    folder: Path
    sweep: str
    settings: dict[str, Any]
    origin: dict[str, Any]
    summary: dict[str, Any]
    figures: list[Path]
    banner: str

    @property
    def is_sweep(self) -> bool:
        """Whether it is a sweep, which has runs of its own."""
        return "points" in self.summary


class Unread(NamedTuple):
    """A folder that is not shown, or not whole, and why."""

    name: str
    why: str


def find(root: Path) -> tuple[list[Run], list[Unread]]:
    """All finished runs and sweeps in a folder and below it, sweeps before their runs."""
    runs: list[Run] = []
    unread: list[Unread] = []
    refused: list[OSError] = []
    for place, below, files in os.walk(root, onerror=refused.append):
        below.sort()
        if CONFIG not in files and SUMMARY not in files:
            continue
        folder = Path(place)
        relative = folder.relative_to(root)
        name = relative.as_posix() if relative.parts else folder.resolve().name
        parents = {run.folder: run.name for run in runs if run.is_sweep}
        sweep = next((parents[p] for p in folder.parents if p in parents), "")
        try:
            run, notes = _read(folder, name, sweep)
        except FileNotFoundError as error:
            missing = Path(error.filename or SUMMARY).name
            unread.append(Unread(name, f"it is not finished: it has no {missing}"))
        except DamagedError as error:
            unread.append(Unread(name, f"{Path(error.path).name} is damaged ({error.why})"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            unread.append(Unread(name, f"it cannot be read ({one_line(error)})"))
        else:
            runs.append(run)
            unread += [Unread(name, note) for note in notes]
    for failed in refused:
        unread.append(Unread(str(failed.filename), f"it cannot be opened ({failed.strerror})"))
    return runs, unread


def _read(folder: Path, name: str, sweep: str) -> tuple[Run, list[str]]:
    """The run in a folder, and notes on files that are missing or were changed."""
    record = read_record(folder / CONFIG)
    summary = _summary(folder / SUMMARY)
    known = summary.get("files", {})
    changed = {file for file, before in known.items() if digest(folder / file) != before}
    notes = [f"{file} is missing or was changed" for file in sorted(changed)]
    figures = []
    for file in sorted((folder / "figures").glob("*")):
        if file.suffix not in _KINDS or f"figures/{file.name}" in changed:
            continue
        if file.read_bytes().startswith(_KINDS[file.suffix]):
            figures.append(file)
        else:
            notes.append(f"figures/{file.name} is no picture")
    page = folder / PAGE
    banner = banner_of(page.read_text("utf-8", "replace")) if page.is_file() else ""
    settings = dict(_flat(record.pop("config")))
    return Run(name, folder, sweep, settings, record, summary, figures, banner), notes


def _summary(file: Path) -> dict[str, Any]:
    """What is in `summary.json`, whose values can be shown; that of a sweep has no checksum."""
    text = retried(file.read_bytes)
    if CHECKSUM.encode() in text:
        summary = read_record(file)
    else:
        try:
            summary = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DamagedError(file, one_line(error)) from error
        if not isinstance(summary, dict) or "points" not in summary:
            raise DamagedError(file, "it is no summary")
    by_point = summary["points"].values() if "points" in summary else [summary]
    for record in (one for point in by_point for one in point.get("methods", {}).values()):
        for value in (v for v in record.values() if isinstance(v, Mapping)):
            numbers = [value.get("mean"), value.get("std"), *value.get("runs", ())]
            if not all(n is None or math.isfinite(n) for n in numbers):
                raise DamagedError(file, "a value is no number")
    return summary


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
