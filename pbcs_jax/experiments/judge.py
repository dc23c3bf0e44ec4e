"""How good a coreset is: fresh networks trained on it, and their accuracy on the test set."""

from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax.data import Problem
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import network_objective
from pbcs_jax.parallel import mask_mesh


class Judge:
    """Trains fresh networks on coresets, and gives the last step's accuracy on the test set."""

    def __init__(self, config: ConfigDict, problem: Problem, key: jax.Array, net: nn.Module):
        self._key = key
        self._n = len(problem.y)
        self._make = lambda size, mesh: jax.jit(
            network_objective(
                as_model(net),
                problem.x,
                problem.y,
                capacities=(size,),
                inner=config_lib.evaluation_settings(config, size),
                validation=(problem.x_test, problem.y_test),
                outer_loss="error_rate",
                mesh=mesh,
            )
        )
        self._compiled: dict[tuple[int, int], Any] = {}

    def __call__(self, coresets: list[np.ndarray]) -> Iterator[list[float]]:
        """Yields lists of accuracies, one a coreset, as many at once as there are devices."""
        size = max(len(indices) for indices in coresets)
        devices = jax.devices()
        if devices[0].platform == "cpu":  # a device without a coreset would only take up a core
            devices = devices[: len(coresets)]
        mesh = mask_mesh(devices)
        if (size, mesh.size) not in self._compiled:
            self._compiled[size, mesh.size] = self._make(size, mesh)
        train = self._compiled[size, mesh.size]
        masks = np.zeros((len(coresets), self._n), np.float32)
        for row, indices in enumerate(coresets):
            masks[row, indices] = 1
        for start in range(0, len(coresets), mesh.size):
            key = jax.random.fold_in(self._key, start)
            evaluation = train(key, jnp.asarray(masks[start : start + mesh.size]))
            if not bool(evaluation.ok.all()):
                raise UserError(
                    "a network of the evaluation diverged: lower evaluation.learning_rate"
                )
            yield np.asarray(evaluation.metrics["outer_accuracy"], float).round(6).tolist()


def make_judges(config: ConfigDict, problem: Problem, key: jax.Array) -> dict[str, Judge]:
    """Judges by the net's name: the evaluation's own net first, then those of the transfer.

    All methods meet the same judges with the same key: they start from the same weights.
    """
    given = config.evaluation
    judges = {}
    for name in (given.model, *given.transfer):
        # The width and dropout of the config are meant for its own net.
        width, dropout = (given.width, given.dropout) if name == given.model else (0, 0.0)
        net = config_lib.make_net(name, width, dropout, problem.num_classes)
        judges[name] = Judge(config, problem, key, net)
    return judges
