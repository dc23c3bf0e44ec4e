"""What a selection returns: what was chosen, how sure it is, and which labels look wrong."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pbcs_jax import npz
from pbcs_jax.errors import DamagedError, UserError
from pbcs_jax.report.files import write_npz


class Suspects(NamedTuple):
    """Candidates whose label is probably wrong, the most suspect first.

    Attributes:
      indices: `[m]`, which.
      scores: `[m]`, falling. Of classes: the probability that the model gives its own label less
        that of the label given, from 0 to 1. Of regressions: how far the target given is from the
        model's, in standard deviations of all targets.
      labels: `[m]`, what a model trained on the coreset would say, in the user's own labels.
    """

    indices: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """A selection of samples, or of inputs.

    Attributes:
      indices: `[K]` sorted, what was chosen.
      probabilities: `[n]`, s.
      history: metrics, each `[outer_steps, ...]`.
      unit: what was chosen, 'samples' or 'inputs'.
      labels: `[n]` of samples: the labels as they were given; else None.
      names: `[n]` of inputs of a table with column names: these; else None.
      pictures: `[n, height, width, channels]` of samples that are pictures; else None. Not saved.
      find_suspects: a function that finds `suspects`; None where there are none to find.
    """

    indices: np.ndarray
    probabilities: np.ndarray
    history: dict[str, np.ndarray]
    unit: str = "samples"
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    pictures: np.ndarray | None = dataclasses.field(default=None, repr=False)
    find_suspects: Callable[[], Suspects] | None = dataclasses.field(default=None, repr=False)

    @cached_property
    def suspects(self) -> Suspects | None:
        """Candidates whose label is probably wrong; None where inputs were chosen.

        Found when it is first asked for: models are trained on the coreset and asked for the
        labels of all candidates.
        """
        return None if self.find_suspects is None else self.find_suspects()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: with the suspects found, without the models that find them."""
        return self.__dict__ | {"suspects": self.suspects, "find_suspects": None}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything but the pictures to an npz file, without pickle; finds `suspects`."""
        suspects = {} if self.suspects is None else self.suspects._asdict()
        optional = {"labels": self.labels, "names": self.names}
        write_npz(
            path,
            unit=self.unit,
            indices=self.indices,
            probabilities=self.probabilities,
            **{name: value for name, value in optional.items() if value is not None},
            **{f"suspects/{name}": value for name, value in suspects.items()},
            **{f"history/{name}": value for name, value in self.history.items()},
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Result":
        """What `save` has written."""
        file = npz.check_file("path", path, "give a file of Result.save")
        try:
            _, arrays = npz.read(file)
            parts: dict[str, dict[str, Any]] = {"": {}, "suspects": {}, "history": {}}
            for name, value in arrays.items():
                part, _, field = name.rpartition("/")
                parts[part][field] = value
            suspects = Suspects(**parts["suspects"]) if parts["suspects"] else None
            own = parts[""] | {"unit": str(parts[""]["unit"])}
            result = cls(**own, history=parts["history"])
            _check_loaded(result)
            result.__dict__["suspects"] = suspects
            return result
        except (DamagedError, OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, UserError) and not isinstance(error, DamagedError):
                raise
            raise UserError(
                f"path is {str(path)!r}: it is damaged, or no file of Result.save; save it again"
            ) from error

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report, one file that opens in any browser.

        It needs the extra `experiments`.
        """
        from pbcs_jax.report.selection import write_selection

        write_selection(path, self)


def _check_loaded(result: Result) -> None:
    """Raises a ValueError unless the indices and probabilities of a file can be a selection's."""
    indices, s = result.indices, result.probabilities
    sound = indices.ndim == s.ndim == 1 and indices.dtype.kind in "iu" and s.dtype.kind == "f"
    if not sound or np.any(indices < 0) or np.any(indices >= len(s)):
        raise ValueError("indices")
    if not np.all((s >= 0) & (s <= 1)):
        raise ValueError("probabilities")
