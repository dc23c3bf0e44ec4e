"""How good a coreset is: fresh networks trained on it, and their accuracy on the test set.

A training may take hours. It goes in spans of `SPAN` seconds, between which a signal is seen, and
is kept on the disk every `KEEP_EVERY` seconds.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from pbcs_jax.compute.mesh import mask_mesh
from pbcs_jax.compute.plan import Compute
from pbcs_jax.data import Problem
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.checkpoints import Checkpoints
from pbcs_jax.experiments.task import Task
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network
from pbcs_jax.objectives.network_spans import InSpans, network_in_spans
from pbcs_jax.outer.base import Objective
from pbcs_jax.processes import Ended
from pbcs_jax.rows import Rows

Make = Callable[[int, Mesh], Objective | InSpans]
"""`(size, mesh) -> evaluate`, which trains fresh networks on what its masks choose, in one call or
in spans."""
SPAN = 2.0
KEEP_EVERY = 60.0


class _Halfway(NamedTuple):
    """Trainings in the middle.

    Attributes:
      step: how often any were kept before.
      start: number of the first of these networks.
      until: steps taken.
      progress: theirs.
    """

    step: np.ndarray
    start: np.ndarray
    until: np.ndarray
    progress: Any


class Judge:
    """Trains fresh networks on what was chosen: the last step's accuracy on the test set."""

    def __init__(
        self,
        make: Make,
        n: int,
        key: jax.Array,
        of_rows: Callable[[np.ndarray], Make] | None = None,
    ):
        """How it judges.

        Args:
          make: the training.
          n: the number of things to choose from.
          key: the same for all methods.
          of_rows: where candidates are too many to hold: the training with these of them alone.
        """
        self._make = make
        self._n = n
        self._of_rows = of_rows
        self._key = key
        self._compiled: dict[tuple[int, int], Any] = {}

    def __call__(
        self, coresets: list[np.ndarray], done: int = 0, kept: Checkpoints | None = None
    ) -> Iterator[list[float]]:
        """Yields lists of accuracies, one per coreset, as many at once as there are devices.

        Args:
          coresets: indices.
          done: how many of them are judged already.
          kept: where trainings in spans are kept.
        """
        size = max(len(indices) for indices in coresets)
        devices = jax.local_devices()  # process 0 judges alone
        if devices[0].platform == "cpu":  # a device without a coreset would only take up a core
            devices = devices[: len(coresets)]
        mesh, n = mask_mesh(devices), self._n
        if self._of_rows is not None:
            rows = np.unique(np.concatenate(coresets))
            coresets = [np.searchsorted(rows, indices) for indices in coresets]
            train, n = _program(self._of_rows(rows)(size, mesh)), len(rows)
        else:
            if (size, mesh.size) not in self._compiled:
                self._compiled[size, mesh.size] = _program(self._make(size, mesh))
            train = self._compiled[size, mesh.size]
        masks = np.zeros((len(coresets), n), np.float32)
        for row, indices in enumerate(coresets):
            masks[row, indices] = 1
        for start in range(done, len(coresets), mesh.size):
            key = jax.random.fold_in(self._key, start)
            given = (key, jnp.asarray(masks[start : start + mesh.size]))
            if isinstance(train, InSpans):
                evaluation = _in_spans(train, *given, start, kept)
            else:
                evaluation = train(*given)
            if not bool(evaluation.ok.all()):
                raise UserError(
                    "a network of the evaluation diverged: lower evaluation.learning_rate"
                )
            yield np.asarray(evaluation.metrics["outer_accuracy"], float).round(6).tolist()


def _program(made: Objective | InSpans) -> Any:
    """What is called: in spans, or in one call, which is compiled whole."""
    return made if isinstance(made, InSpans) else jax.jit(made)


def _in_spans(
    training: InSpans, key: jax.Array, masks: jax.Array, start: int, kept: Checkpoints | None
) -> Any:
    """The scores at the end of the trainings, from where an interrupted run was."""
    number = lambda value: np.array(value, np.int32)  # noqa: E731
    state = _Halfway(number(0), number(start), number(0), training.begin(masks))
    found = kept.restore(state) if kept else None
    if found is not None:  # those of the networks before may be there still
        state = found if found.start == start else state._replace(step=found.step)
    saved, last = int(state.until), time.monotonic()
    steps, is_compiled = 1, False

    def keep():
        if kept and int(state.until) > saved:
            kept.save(state._replace(step=state.step + 1), [])

    try:
        while True:
            began = time.monotonic()
            until = min(int(state.until) + steps, training.steps)
            progress, scores = training.advance(key, masks, state.progress, until)
            if bool(scores.ended.all()):
                return scores
            state = state._replace(until=number(until), progress=progress)
            now = time.monotonic()
            if is_compiled:
                steps = max(1, min(training.steps, round(steps * SPAN / (now - began))))
            is_compiled = True
            if now - last >= KEEP_EVERY:
                keep()
                state = state._replace(step=state.step + 1)
                saved, last = until, time.monotonic()
    except (KeyboardInterrupt, Ended):
        keep()
        raise


def make_judges(
    config: ConfigDict, problem: Problem, task: Task, key: jax.Array
) -> dict[str, Judge]:
    """Judges by the net's name: the evaluation's own first, then the transfer's.

    All methods meet the same judges with the same key: they start from the same weights.
    """

    def make(net, x, y):
        def objective(size, mesh):
            choice = task.choice(size)
            rows = choice.levels[-1] or len(y)
            inner = config_lib.evaluation_settings(config, rows)
            return network_in_spans(
                as_model(net),
                x,
                y,
                choice,
                Network(inner, outer_loss="error_rate", outer_on=task.outer_on),
                validation=(problem.x_test, problem.y_test),
                compute=Compute(mesh),
            )

        return objective

    nets = config_lib.judge_nets(config, problem.num_classes)
    x, y = problem.x, problem.y

    def judge(net):
        of_rows = lambda chosen: make(net, x[chosen], y[chosen])  # noqa: E731
        return Judge(make(net, x, y), task.n, key, of_rows if isinstance(x, Rows) else None)

    return {name: judge(net) for name, net in nets.items()}
