"""The state of a loop and its history on the disk: one checked file per checkpoint.

`checkpoints/STEP/state.npz` holds all that a selection needs to continue: the state, the metrics of
all steps so far, and whose it is; so it is with the trainings of judges. What cannot be read is set
aside, never deleted.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from pbcs_jax import npz
from pbcs_jax.errors import DamagedError, UserError
from pbcs_jax.outer.loop import Metrics
from pbcs_jax.report.files import remove_unfinished, retried, set_aside, write_npz

KEPT = 3
_FILE = "state.npz"

State = TypeVar("State", bound=Any)
"""A NamedTuple with a `step`, and maybe a `key`."""


class Checkpoints:
    """The checkpoints of one run, or of one judge in it.

    Attributes:
      history: of each metric its values `[steps, ...]`, from the first step to the last one saved
        or restored.
    """

    def __init__(self, folder: Path, owner: str, name: str = "checkpoints"):
        """They are in `folder / name`; `owner` tells them from those of other runs."""
        self._folder = folder / name
        self._owner = owner
        self.history: dict[str, np.ndarray] = {}

    def save(self, state: State, metrics: list[Metrics]) -> None:
        """Saves the state and the metrics that led to it, then removes all but the newest `KEPT`.

        Args:
          state: after a step.
          metrics: of the last steps up to it; those saved before may be among them.
        """
        step = int(state.step)
        before = step - len(metrics)
        for name in metrics[0] if metrics else ():
            new = np.stack([np.asarray(entry[name]) for entry in metrics])
            self.history[name] = np.concatenate([self.history.get(name, new)[:before], new])
        arrays = {f"state/{i}": leaf for i, leaf in enumerate(_leaves(state))}
        arrays |= {f"history/{name}": values for name, values in self.history.items()}
        place = self._own(step)
        write_npz(place / _FILE, owner=np.array(self._owner), **arrays)
        self._remove(self._steps()[KEPT:])

    def restore(self, like: State) -> State | None:
        """The newest state that can be read, or None; `like` is one of the same settings."""
        for step in self._steps():
            try:
                state = self._read(step, like)
            except DamagedError as error:
                aside = set_aside(self._folder / str(step))
                logging.warning(
                    "checkpoint %d cannot be read (%s): it is kept as %s, an earlier one serves",
                    *(step, error.why, aside.name),
                )
                continue
            return state
        return None

    def clear(self) -> None:
        """Removes all of them: what they lead to is there."""
        self._remove(self._steps())
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)

    def _remove(self, steps: list[int]) -> None:
        for step in steps:
            (self._own(step) / _FILE).unlink()
            remove_unfinished(self._own(step))
            with contextlib.suppress(OSError):  # what else there is, is not ours
                os.rmdir(self._own(step))

    def _read(self, step: int, like: State) -> State:
        path = self._own(step) / _FILE
        try:
            _, arrays = retried(lambda: npz.read(path))
        except OSError as error:
            raise UserError(
                f"checkpoint {str(path)!r} cannot be read ({npz.reason(error)}): rerun the command "
                "when it can; it is left as it is"
            ) from error
        if str(arrays.pop("owner", self._owner)) != self._owner:
            raise UserError(
                f"checkpoint {str(path)!r} belongs to another run: give each run a folder for its "
                "checkpoints"
            )
        state = _assemble(path, arrays, like)
        if int(state.step) != step:
            raise DamagedError(path, f"it holds step {int(state.step)}")
        history = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith("history/")}
        if any(len(values) != step for values in history.values()):
            raise DamagedError(path, "its history has another length")
        self.history = history
        return state

    def _own(self, step: int) -> Path:
        """The folder of a checkpoint; a link would lead to files of others."""
        place = self._folder / str(step)
        if place.is_symlink():
            raise UserError(f"checkpoint {str(place)!r} is a symbolic link: remove it")
        return place

    def _steps(self) -> list[int]:
        """Steps with a checkpoint, the newest first."""
        if not self._folder.is_dir():
            return []
        names = [n for n in os.listdir(self._folder) if n.isascii() and n.isdigit()]
        steps = [int(n) for n in names if os.path.lexists(self._folder / n / _FILE)]
        return sorted(steps, reverse=True)


def _leaves(state: Any) -> list[Any]:
    return jax.tree.leaves(_with_key(state, jax.random.key_data))


def _with_key(state: State, function: Any) -> State:
    """A state with `function` of its key, if it has one."""
    return state._replace(key=function(state.key)) if hasattr(state, "key") else state


def _assemble(path: Path, arrays: Mapping[str, np.ndarray], like: State) -> State:
    """The state from its arrays, each of the shape and type that `like` has there."""
    wanted = _leaves(like)
    leaves = [arrays.get(f"state/{i}") for i in range(len(wanted))]
    for given, leaf in zip(leaves, wanted, strict=True):
        if given is None or given.shape != leaf.shape or given.dtype != leaf.dtype:
            raise DamagedError(path, "it is of other settings or of another version")
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise DamagedError(path, "it holds NaN")
    structure = jax.tree.structure(_with_key(like, lambda key: 0))
    state = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
    return _with_key(state, jax.random.wrap_key_data)
