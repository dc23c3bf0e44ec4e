"""PBCS in a run: with metrics and checkpoints, from where a killed run stopped.

Of several processes all select, and process 0 alone reads and writes files.
"""

import json
from pathlib import Path
from typing import Any

import jax
from absl import logging
from ml_collections import ConfigDict

from pbcs_jax import ending, processes
from pbcs_jax.errors import DamagedError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.checkpoints import Checkpoints
from pbcs_jax.experiments.metrics import MetricsLog
from pbcs_jax.experiments.task import Experiment, Task
from pbcs_jax.experiments.workdir import identity
from pbcs_jax.outer import loop
from pbcs_jax.report.files import read_record, set_aside, write_npz, write_record
from pbcs_jax.result import Result

CHOICE = "choice.json"
"""What objective 'auto' does, from the moment when it is planned, and what came of it."""


def select(key: jax.Array, config: ConfigDict, task: Task, folder: Path) -> Result:
    """What PBCS selects."""
    if config.selection.objective == "auto":
        return _search(key, task, folder)
    checkpoints = Checkpoints(folder, identity(folder))
    like = _first_state(key, config, task)
    state = _from_first(checkpoints.restore(like), like)
    log = MetricsLog(folder, checkpoints.history, 0 if state is None else int(state.step))

    def callback(state, metrics):
        task.watch(state, folder)
        checkpoints.save(state, metrics)
        log.append(state, metrics)
        ending.check_signals()

    try:
        with ending.stops_together():
            return task.select(key, state, callback)
    finally:
        log.close()


def _search(key: jax.Array, task: Task, folder: Path | None) -> Result:
    """What objective 'auto' selects, by the plan of an interrupted run if there is one.

    Args:
      key: PRNG key, consumed.
      task: with a `select` that takes a plan as its start, and shows the one that it makes.
      folder: of the run; None for processes beside the first.
    """
    text = processes.from_first(lambda: json.dumps(_planned(folder)))

    def keep(record: dict[str, Any]) -> None:
        if folder is not None:
            write_record(folder / CHOICE, record)

    result = task.select(key, json.loads(text), lambda plan: keep({"plan": plan.to_dict()}))
    keep(result.choice.to_dict())
    return result


def _planned(folder: Path | None) -> dict[str, Any] | None:
    """The plan that was kept; None if there is none that can be read."""
    if folder is None:
        return None
    try:
        return read_record(folder / CHOICE)["plan"]
    except FileNotFoundError:
        return None
    except (DamagedError, KeyError) as error:
        aside = set_aside(folder / CHOICE)
        logging.warning("%s cannot be read (%s): set aside as %s", CHOICE, error, aside.name)
        return None


def invite(selects: bool) -> None:
    """Tells the other processes whether there is anything to select in this run."""
    processes.from_first(lambda: "yes" if selects else "")


def take_part(experiment: Experiment, config: ConfigDict) -> None:
    """What the processes beside the first do in a run: the selection, if it is not done."""
    if not processes.from_first(str):
        return
    # Process 0 has loaded the data already: what it downloaded is there.
    task = experiment.task(config, config_lib.load_problem(config))
    key = config_lib.keys(config)[0]
    if config.selection.objective == "auto":
        _search(key, task, None)
        return
    state = _from_first(None, _first_state(key, config, task))
    with ending.stops_together():
        task.select(key, state, lambda state, metrics: ending.check_signals())


def _first_state(key: jax.Array, config: ConfigDict, task: Task) -> loop.State:
    settings = config_lib.loop_settings(config, task.n)
    return loop.init(key, task.n, config_lib.size(config), settings)


def _from_first(state: loop.State | None, like: loop.State) -> loop.State | None:
    """The state that process 0 found on its disk, or None; `like` is one of the same shapes."""
    if not processes.are_several():
        return state
    if not processes.from_first(lambda: "" if state is None else "found"):
        return None
    given = like if state is None else state
    arrays = given._replace(key=jax.random.key_data(given.key))
    found = processes.arrays_from_first(arrays)
    return found._replace(key=jax.random.wrap_key_data(found.key))


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
