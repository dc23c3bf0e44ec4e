"""What each method of a run chose, and how it was judged: one file per method.

`judging/NAME.json` is written after every network that is judged; `methods/NAME.json` takes its
place when all are. Beside it are the checkpoints of long trainings, `judging/NAME/NET-DIGEST/`.
What is damaged is set aside, and found again.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from pbcs_jax.errors import DamagedError
from pbcs_jax.experiments.checkpoints import Checkpoints
from pbcs_jax.report.files import checksum, digest, read_record, set_aside, write_record

Record = dict[str, Any]


class Records(NamedTuple):
    """The records of a run.

    Attributes:
      folder: of the run.
      owner: what tells them from those of other runs.
      n: how many there are to choose from.
      nets: which judge.
      num_seeds: networks per net.
    """

    folder: Path
    owner: str
    n: int
    nets: Sequence[str]
    num_seeds: int

    def begin(self, seconds: float, coresets: Sequence[np.ndarray], *files: str) -> Record:
        """A record of what was chosen, and of the files written with it; nothing is judged yet."""
        return {
            "run": self.owner,
            "seconds": seconds,
            "judging_seconds": 0.0,
            "runs": {net: [] for net in self.nets},
            "coresets": [np.asarray(coreset).tolist() for coreset in coresets],
            "files": {name: digest(self.folder / name) for name in files},
        }

    def read(self, name: str) -> Record | None:
        """The record of a method, finished or not; None if there is none that can be read."""
        for file in (self._finished(name), self._begun(name)):
            try:
                record = read_record(file)
                self._check(file, record)
                return record
            except FileNotFoundError:
                continue
            except DamagedError as error:
                aside = set_aside(file)
                logging.warning(
                    "file %r is damaged (%s): it is kept as %s, and its content is found again",
                    *(str(file), error.why, aside.name),
                )
        return None

    def write(self, name: str, record: Record) -> None:
        """Keeps a record; the finished one replaces the one that was begun."""
        if self.is_judged(record):
            write_record(self._finished(name), record)
            self._begun(name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others are still begun
                self._begun(name).parent.rmdir()
        else:
            write_record(self._begun(name), record)

    def halfway(self, name: str, net: str, record: Record) -> Checkpoints:
        """Where the trainings of a judge on the coresets of a record are kept."""
        place = f"{net}-{checksum(record['coresets'])[:8]}"
        return Checkpoints(self.folder / "judging" / name, self.owner, place)

    def clear(self, name: str) -> None:
        """Removes what was kept of trainings, after the last one."""
        place = self.folder / "judging" / name
        if not place.is_dir():
            return
        for judge in sorted(place.iterdir()):
            Checkpoints(place, self.owner, judge.name).clear()
        with contextlib.suppress(OSError):  # what else there is, is not ours
            place.rmdir()
            place.parent.rmdir()

    def is_judged(self, record: Record) -> bool:
        """Whether all networks have judged it."""
        return all(len(found) == self.num_seeds for found in record["runs"].values())

    def is_whole(self, record: Record) -> bool:
        """Whether the files that were written with it are as they were."""
        return all(digest(self.folder / f) == known for f, known in record["files"].items())

    def has(self, name: str) -> bool:
        """Whether a method has chosen already."""
        record = self.read(name)
        return record is not None and self.is_whole(record)

    def _finished(self, name: str) -> Path:
        return self.folder / "methods" / f"{name}.json"

    def _begun(self, name: str) -> Path:
        return self.folder / "judging" / f"{name}.json"

    def _check(self, file: Path, record: Mapping[str, Any]) -> None:
        """Raises unless it is a record of this run, with values that can be."""
        try:
            runs, coresets = record["runs"], record["coresets"]
            seconds = [record["seconds"], record["judging_seconds"]]
            indices = [np.array(coreset) for coreset in coresets]
            sound = {
                "it is of another run": record["run"] == self.owner,
                "its networks are others": list(runs) == list(self.nets),
                "its times are wrong": all(math.isfinite(s) and s >= 0 for s in seconds),
                "an accuracy is not within 0..1": all(
                    len(found) <= self.num_seeds and all(0 <= a <= 1 for a in found)
                    for found in runs.values()
                ),
                "an index is none": bool(indices)
                and all(i.dtype.kind == "i" and i.ndim == 1 for i in indices)
                and all(i.size and i.min() >= 0 and i.max() < self.n for i in indices),
                "its files are no names": all(isinstance(f, str) for f in record["files"]),
            }
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DamagedError(file, f"{type(error).__name__}: {error}") from error
        for why, holds in sound.items():
            if not holds:
                raise DamagedError(file, why)
