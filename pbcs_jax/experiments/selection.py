"""PBCS in a run: with metrics and checkpoints, from where a killed run stopped."""

from pathlib import Path

import jax
from ml_collections import ConfigDict

from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.checkpoints import Checkpoints
from pbcs_jax.experiments.metrics import MetricsLog
from pbcs_jax.experiments.task import Task
from pbcs_jax.experiments.workdir import identity
from pbcs_jax.outer import loop
from pbcs_jax.report.files import write_npz
from pbcs_jax.result import Result


def select(key: jax.Array, config: ConfigDict, task: Task, folder: Path) -> Result:
    """What PBCS selects."""
    settings = config_lib.loop_settings(config, task.n)
    checkpoints = Checkpoints(folder, identity(folder))
    state = checkpoints.restore(loop.init(key, task.n, config_lib.size(config), settings))
    log = MetricsLog(folder, checkpoints.history, 0 if state is None else int(state.step))

    def callback(state, metrics):
        task.watch(state, folder)
        checkpoints.save(state, metrics)
        log.append(state, metrics)

    try:
        return task.select(key, state, callback)
    finally:
        log.close()


def keep(result: Result, task: Task, folder: Path) -> None:
    """Writes `coreset.npz`: what was selected and, where there are any to find, the suspects."""
    suspects = {} if result.suspects is None else result.suspects._asdict()
    write_npz(
        folder / "coreset.npz",
        indices=result.indices,
        probabilities=result.probabilities,
        **task.arrays(result.indices),
        **{f"suspect_{name}": values for name, values in suspects.items()},
    )
