"""The folder of one run: what is in it, and how an interrupted run resumes from it."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorboardX
from absl import logging
from ml_collections import ConfigDict

from pbcs_jax.errors import UserError
from pbcs_jax.experiments.config import flatten
from pbcs_jax.outer.loop import Metrics, State
from pbcs_jax.report.files import write_json
from pbcs_jax.report.page import Fact, duration
from pbcs_jax.report.tables import Cell

_PROGRAMS = {
    "launch.py": ("python", "launch.py"),
    "__main__.py": ("python", "-m", "pbcs_jax"),
    "pbcs": ("pbcs",),
}
_PACKAGES = ("pbcs_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def open_workdir(path: str, config: ConfigDict) -> Path:
    """Makes the folder, or checks that it belongs to this very config.

    Returns:
      The folder, with `config.json` in it.
    """
    folder = Path(path).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"workdir {path!r} cannot be made ({error.strerror}): give a folder you may write to"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"workdir {path!r} is not writable: give a folder you may write to")
    file = folder / "config.json"
    if not file.exists():
        if any(folder.iterdir()):
            raise UserError(
                f"workdir {path!r} is not empty and not a run of pbcs_jax: "
                "give a new or empty folder"
            )
        try:
            write_json(file, {"config": config.to_dict(), **_environment()})
        except OSError as error:
            raise UserError(
                f"workdir {path!r} cannot be written to ({error.strerror}): give another folder"
            ) from error
        return folder
    try:
        before = flatten(json.loads(file.read_text())["config"])
    except (ValueError, KeyError) as error:
        raise UserError(
            f"{str(file)!r} is damaged: delete the folder or give another --workdir"
        ) from error
    now = flatten(config.to_dict())
    for key in before | now:
        if before.get(key) != now.get(key):
            raise UserError(
                f"workdir {path!r} belongs to another config ({key} was {before.get(key)!r}, "
                f"is now {now.get(key)!r}): give another --workdir, or delete that folder"
            )
    return folder


def _environment() -> dict[str, Any]:
    root = Path(__file__).parents[2]
    commit = None
    if (root / ".git").exists() and shutil.which("git"):
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
        )
        commit = done.stdout.strip() or None
    return {
        "versions": {name: metadata.version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
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
    record = json.loads((folder / "config.json").read_text())
    commit, command = record.get("git_commit"), record.get("command")
    return [
        ("Selecting and judging took", duration(seconds)),
        ("Commit", commit[:12] if commit else "-"),
        ("Settings and versions", Cell("config.json", link="config.json")),
        ("Command", command or "-"),
    ]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of `metrics.jsonl`, one per outer step; none where there is no such file."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:  # cut in the middle by a kill; what follows is gone too
            break
    return records


class MetricsLog:
    """`metrics.jsonl`, one line per outer step, and TensorBoard event files beside it."""

    def __init__(self, folder: Path, last_step: int):
        """Opens the log to continue after `last_step`; later lines are cut off."""
        self._path = folder / "metrics.jsonl"
        self.records = [r for r in read_metrics(folder) if r["step"] <= last_step]
        lines = "".join(json.dumps(r) + "\n" for r in self.records)
        beside = self._path.with_suffix(".tmp")
        beside.write_text(lines)
        os.replace(beside, self._path)
        self._file = self._path.open("a")
        self._board = tensorboardX.SummaryWriter(str(folder / "tensorboard"), purge_step=last_step)

    def append(self, metrics: list[Metrics]) -> None:
        """Adds the steps that follow those there are."""
        for entry in metrics:
            step = len(self.records) + 1
            record = {"step": step} | {k: np.asarray(v).tolist() for k, v in entry.items()}
            self.records.append(record)
            self._file.write(json.dumps(record) + "\n")
            for name, value in record.items():
                if name != "step" and np.ndim(value) == 0:
                    self._board.add_scalar(f"selection/{name}", value, step)
        self._file.flush()

    def close(self) -> None:
        """Ends the files."""
        self._file.close()
        self._board.close()


class Checkpoints:
    """The outer loop's state, by orbax. A damaged checkpoint falls back to the one before."""

    def __init__(self, folder: Path):
        (folder / "checkpoints").mkdir(exist_ok=True)
        alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
        options = ocp.CheckpointManagerOptions(
            max_to_keep=3, create=False, multiprocessing_options=alone
        )
        self._manager = ocp.CheckpointManager(folder / "checkpoints", options=options)

    def save(self, state: State) -> None:
        """Saves in the background."""
        self._manager.save(int(state.step), args=ocp.args.StandardSave(jax.device_get(_storable(state))))

    def restore(self, like: State) -> State | None:
        """The newest state that can be read, or None."""
        template = jax.tree.map(ocp.utils.to_shape_dtype_struct, _storable(like))
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                stored = self._manager.restore(step, args=ocp.args.StandardRestore(template))
            except Exception as error:  # orbax and tensorstore raise many kinds for a torn file
                logging.warning(
                    "checkpoint %d cannot be read (%s): going back to the one before",
                    step,
                    str(error).splitlines()[0] if str(error) else type(error).__name__,
                )
                self._manager.delete(step)
                continue
            stored["key"] = jax.random.wrap_key_data(stored["key"])
            return State(**jax.tree.map(jnp.asarray, stored))
        return None

    def close(self) -> None:
        """Waits for the last save."""
        self._manager.wait_until_finished()
        self._manager.close()


def _storable(state: State) -> dict[str, Any]:
    return state._asdict() | {"key": jax.random.key_data(state.key)}
