"""The metrics of a selection for people: `metrics.jsonl`, and TensorBoard's event files.

Nothing continues from either: that is what checkpoints are for.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from pbcs_jax.outer.loop import Metrics, State
from pbcs_jax.report.files import write_atomically

NAME = "metrics.jsonl"


class MetricsLog:
    """`metrics.jsonl`, one line per outer step, and TensorBoard event files beside it."""

    def __init__(self, folder: Path, history: Mapping[str, np.ndarray], last_step: int):
        """Writes the file anew, from the history of the steps up to `last_step`."""
        steps = range(1, last_step + 1)
        lines = [_line(n, {name: values[n - 1] for name, values in history.items()}) for n in steps]
        write_atomically(folder / NAME, "".join(lines))
        self._file = (folder / NAME).open("a")
        board = folder / "tensorboard"
        board.mkdir(exist_ok=True)
        # Not SummaryWriter: it writes in a thread, where a full disk ends in a traceback.
        self._board = EventsWriter(str(board / "events"))
        self._event(step=last_step, session_log=SessionLog(status=SessionLog.START))

    def append(self, state: State, metrics: list[Metrics]) -> None:
        """Adds the steps that led to this state."""
        for step, entry in enumerate(metrics, int(state.step) - len(metrics) + 1):
            self._file.write(_line(step, entry))
            for name, value in entry.items():
                if np.ndim(value) == 0:
                    self._event(step=step, summary=scalar(f"selection/{name}", np.asarray(value)))
        self._file.flush()
        self._board.flush()

    def close(self) -> None:
        """Ends the files."""
        self._file.close()
        self._board.close()

    def _event(self, **content: Any) -> None:
        self._board.write_event(Event(wall_time=time.time(), **content))


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of `metrics.jsonl`, one per outer step; none where there is no such file."""
    path = folder / NAME
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def _line(step: int, metrics: Metrics) -> str:
    record = {"step": step} | {k: np.asarray(v).tolist() for k, v in metrics.items()}
    return json.dumps(record) + "\n"
