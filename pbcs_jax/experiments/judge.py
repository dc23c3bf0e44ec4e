"""How good a coreset is: fresh networks trained on it, and their accuracy on the test set."""

from collections.abc import Callable, Iterator
from typing import Any

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
from pbcs_jax.experiments.task import Task
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.outer.base import Objective
from pbcs_jax.rows import Rows

Make = Callable[[int, Mesh], Objective]
"""`(size, mesh) -> evaluate`, which trains fresh networks on what its masks choose."""


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
        self._make = lambda size, mesh: jax.jit(make(size, mesh))
        self._n = n
        self._of_rows = of_rows
        self._key = key
        self._compiled: dict[tuple[int, int], Any] = {}

    def __call__(self, coresets: list[np.ndarray], done: int = 0) -> Iterator[list[float]]:
        """Yields lists of accuracies, one per coreset, as many at once as there are devices.

        Args:
          coresets: indices.
          done: how many of them are judged already.
        """
        size = max(len(indices) for indices in coresets)
        devices = jax.local_devices()  # process 0 judges alone
        if devices[0].platform == "cpu":  # a device without a coreset would only take up a core
            devices = devices[: len(coresets)]
        mesh, n = mask_mesh(devices), self._n
        if self._of_rows is not None:
            rows = np.unique(np.concatenate(coresets))
            coresets = [np.searchsorted(rows, indices) for indices in coresets]
            train, n = jax.jit(self._of_rows(rows)(size, mesh)), len(rows)
        else:
            if (size, mesh.size) not in self._compiled:
                self._compiled[size, mesh.size] = self._make(size, mesh)
            train = self._compiled[size, mesh.size]
        masks = np.zeros((len(coresets), n), np.float32)
        for row, indices in enumerate(coresets):
            masks[row, indices] = 1
        for start in range(done, len(coresets), mesh.size):
            key = jax.random.fold_in(self._key, start)
            evaluation = train(key, jnp.asarray(masks[start : start + mesh.size]))
            if not bool(evaluation.ok.all()):
                raise UserError(
                    "a network of the evaluation diverged: lower evaluation.learning_rate"
                )
            yield np.asarray(evaluation.metrics["outer_accuracy"], float).round(6).tolist()


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
            return network_objective(
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
