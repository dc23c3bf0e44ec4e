"""The folder of one run: what is in it, and how an interrupted run resumes from it."""

import contextlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from absl import logging
from ml_collections import ConfigDict

from pbcs_jax.errors import DamagedError, UserError
from pbcs_jax.experiments import lock, metrics
from pbcs_jax.experiments.config import flatten
from pbcs_jax.npz import reason
from pbcs_jax.report.files import (
    checksum,
    digest,
    read_record,
    remove_unfinished,
    write_record,
)
from pbcs_jax.report.page import Fact, duration
from pbcs_jax.report.tables import Cell

_PROGRAMS = {
    "launch.py": ("python", "launch.py"),
    "__main__.py": ("python", "-m", "pbcs_jax"),
    "pbcs": ("pbcs",),
}
_PACKAGES = ("pbcs_jax", "jax", "jaxlib", "flax", "optax", "numpy")
CONFIG, SUMMARY = "config.json", "summary.json"


def absolute(path: str) -> Path:
    """The folder that a user names."""
    return Path(os.path.expanduser(path)).absolute()


@contextlib.contextmanager
def open_workdir(
    path: str, config: ConfigDict, data: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """Makes the folder, or checks that it belongs to this very config, and holds it alone.

    Args:
      path: of the folder.
      config: of the run.
      data: fingerprint of its data, see `data.fingerprints`; None where the run reads none itself.

    Yields:
      The folder, with `config.json` in it.
    """
    folder = absolute(path)
    remedy = "give a folder you may write to"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = set(os.listdir(folder))
    except (OSError, ValueError) as error:
        raise UserError(f"workdir {path!r} cannot be made ({reason(error)}): {remedy}") from error
    if names and not names & {CONFIG, lock.NAME}:
        raise UserError(
            f"workdir {path!r} is not empty and not a run of pbcs_jax: give a new or empty folder"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"workdir {path!r} is not writable: {remedy}")
    with lock.one_writer(folder):
        remove_unfinished(folder)
        if (folder / CONFIG).exists():
            _check_same(folder, config, data)
        else:
            environment = {"data": data, **_environment()}
            write_record(folder / CONFIG, {"config": config.to_dict(), **environment})
        yield folder


def finished(path: str, config: ConfigDict) -> dict[str, Any] | None:
    """`summary.json` of a finished run of this config; None if anything is left to do.

    A run is finished if all its files are as they were written. Nothing is written here.
    """
    folder = absolute(path)
    file = folder / SUMMARY
    try:
        if not file.exists():
            return None
        _check_config(folder, config)
        summary = read_record(file)
        changed = [
            name for name, known in summary["files"].items() if digest(folder / name) != known
        ]
    except DamagedError as error:
        if error.path == file:
            logging.warning("%s", error)
            return None
        raise
    except KeyError:
        return None
    for name in changed:
        logging.warning("file %r is missing or was changed: it is made again", str(folder / name))
    return None if changed else summary


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Writes `summary.json`, the last file of a run, with the digests of all others."""
    names = [metrics.NAME, "coreset.npz", "report.html", "table.md"]
    for below in ("methods", "figures"):
        names += sorted(f"{below}/{f.name}" for f in (folder / below).glob("[!.]*.*"))
    names = [name for name in names if "unreadable-" not in name and (folder / name).is_file()]
    files = {name: digest(folder / name) for name in names}
    write_record(folder / SUMMARY, {**summary, "files": files})


def identity(folder: Path) -> str:
    """What tells the files of this run from those of others: a digest of its config and data."""
    record = read_record(folder / CONFIG)
    return checksum({"config": record["config"], "data": record.get("data")})


def _check_config(folder: Path, config: ConfigDict) -> dict[str, Any]:
    """The record of a folder; raises unless it is of this very config."""
    record = read_record(folder / CONFIG)
    before, now = flatten(record["config"]), flatten(config.to_dict())
    for key in before | now:
        if before.get(key) != now.get(key):
            raise UserError(
                f"workdir {str(folder)!r} belongs to another config ({key} was "
                f"{before.get(key)!r}, is now {now.get(key)!r}): give another --workdir, or delete "
                "that folder"
            )
    return record


def _check_same(folder: Path, config: ConfigDict, data: Mapping[str, Any] | None) -> None:
    """Raises, or warns where the results may differ in rounding only, unless all is as it was."""
    record = _check_config(folder, config)
    known = record.get("data")
    if data is not None and known is not None:
        for key in known | dict(data):
            if known.get(key) != data.get(key):
                raise UserError(
                    f"data of {str(folder)!r} have changed ({key} was {known.get(key)!r}, is now "
                    f"{data.get(key)!r}): give the data that the run began with, or another "
                    "--workdir"
                )
    now = versions()
    other = {k: v for k, v in record.get("versions", {}).items() if now.get(k) != v}
    if "pbcs_jax" in other:
        raise UserError(
            f"workdir {str(folder)!r} was begun with pbcs_jax {other['pbcs_jax']}, this is "
            f"{now['pbcs_jax']}: continue with that version, or give another --workdir"
        )
    for name, version in other.items():
        logging.warning(
            "the run was begun with %s %s, this is %s: results may differ from those of an "
            "uninterrupted run",
            *(name, version, now.get(name)),
        )


def versions() -> dict[str, str]:
    """What results may depend on."""
    return {name: metadata.version(name) for name in _PACKAGES} | {
        "python": platform.python_version()
    }


def _environment() -> dict[str, Any]:
    root = Path(__file__).parents[2]
    commit = None
    if (root / ".git").exists() and shutil.which("git"):
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
        )
        commit = done.stdout.strip() or None
    return {
        "versions": versions(),
        "devices": [str(device) for device in jax.devices()],
        "git_commit": commit,
        "command": command_line(sys.argv),
    }


def command_line(arguments: list[str]) -> str | None:
    """The command that a shell understands; None if Python code called, not the command line.

    >>> command_line(["/some/where/launch.py", "--config.sweep.seeds=(0, 1)"])
    "python launch.py '--config.sweep.seeds=(0, 1)'"
    """
    program = _PROGRAMS.get(Path(arguments[0]).name)
    return " ".join([*program, *map(_quoted, arguments[1:])]) if program else None


def _quoted(text: str) -> str:
    """For a shell; names of points in single quotes are readable in double ones only."""
    readable = "'" in text and not set(text) & set('"$`\\!')
    return f'"{text}"' if readable else shlex.quote(text)


def origin(folder: Path, seconds: float) -> list[Fact]:
    """Facts of a page: how long a run took, and what made it, from its `config.json`."""
    record = read_record(folder / CONFIG)
    commit, command = record.get("git_commit"), record.get("command")
    return [
        ("Selecting and judging took", duration(seconds)),
        ("Commit", commit[:12] if commit else "-"),
        ("Settings and versions", Cell(CONFIG, link=CONFIG)),
        ("Command", command or "-"),
    ]
