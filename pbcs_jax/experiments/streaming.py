"""Streaming: tasks one after another in small chunks; nobody tells a memory where a task ends.

The network learns each chunk for a few epochs with the memory beside it, then the memory gets the
chunk: a reservoir, or slots that are merged and reduced by any of the methods.
"""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax import progress
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.baselines.checked import in_order
from pbcs_jax.baselines.samples.herding import herding_ranks
from pbcs_jax.data import Problem
from pbcs_jax.data.tasks import stream
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments import continual
from pbcs_jax.experiments.lifelong import Life, Step, live
from pbcs_jax.experiments.rehearsal import OPTIONS, is_corrupted, picker
from pbcs_jax.experiments.task import Experiment, Task
from pbcs_jax.objectives.embeddings import normalise
from pbcs_jax.objectives.relu_kernel import relu_tangents
from pbcs_jax.replay import ClassBalancedReservoir, Memory, MergeReduce, Reservoir, by_kernel
from pbcs_jax.replay.merge_reduce import Reduce
from pbcs_jax.report.files import write_npz


def _task(config: ConfigDict, problem: Problem) -> Task:
    base = continual.make_task(config, problem)
    sequences = [
        continual.make_tasks(config, problem, seed) for seed in range(config.evaluation.num_seeds)
    ]
    return base._replace(
        plan=(base.plan[0], f"{base.plan[1]}, chunks of {config.stream.chunk}"),
        play=lambda name, key, folder: _play(config, sequences, name, key, folder),
        title=f"Streaming of {problem.name}",
    )


METHODS = ("pbcs", *BASELINES, *continual.RESERVOIRS)
EXPERIMENT = Experiment(METHODS, lambda config: "samples", _task)


def _play(
    config: ConfigDict, sequences: list[list[Problem]], name: str, key: jax.Array, folder: Path
) -> dict[str, Any]:
    """The record of one method."""
    pick_key, life_key = jax.random.split(key)
    partial, began = folder / "partial" / name, time.monotonic()
    steps = []
    with progress.shown(), progress.steps(f"Choosing by {name}", len(sequences)) as show:
        for s, sequence in enumerate(sequences):
            own = jax.random.fold_in(pick_key, s)
            steps.append(_steps(config, name, own, sequence, partial / f"picks_{s}.npz"))
            show(s + 1, lambda: "")
    chosen = time.monotonic()
    memory, compiled = _memory(config, name, sequences[0][0])
    life = Life(
        sequences,
        steps,
        memory,
        continual.make_learner(config, config.stream.chunk, sequences[0][0].num_classes),
        tuple(config.continual.betas),
        scaled=name in continual.RESERVOIRS,
        compiled=compiled,
    )
    state = live(life, life_key, partial)
    trained = [_by_task(own, len(sequences[0])) for own in steps]
    return continual.record(config, state, sequences, trained) | {
        "seconds": (chosen - began) / len(sequences),
        "judging_seconds": time.monotonic() - chosen,
    }


def _steps(config: ConfigDict, name: str, key, sequence: list[Problem], file: Path) -> list[Step]:
    """What is learnt of each chunk, and given to the memory: all of it, or what a method keeps."""
    chunks = stream(sequence, config.stream.chunk)
    last = {task: number for number, (task, _) in enumerate(chunks)}
    # PBCS looks for what is not to be trusted; the memory of any other method gets all.
    selects = config.continual.train_on == "selected"
    narrows = selects or (name == "pbcs" and is_corrupted(config))
    if not file.exists():
        pick = picker(config, name if name in ("pbcs", *BASELINES) else "uniform")
        kept = []
        for number, (task, rows) in enumerate(chunks if narrows else []):
            part = _rows(sequence[task], rows)
            own = pick(jax.random.fold_in(key, number), part, min(config.stream.slots, len(rows)))
            kept.append(rows[own.kept])
        write_npz(file, kept=np.array(kept if narrows else [rows for _, rows in chunks]))
    with np.load(file, allow_pickle=False) as stored:
        found = stored["kept"]
    return [
        Step(task, own if selects else rows, own, last[task] == number)
        for number, ((task, rows), own) in enumerate(zip(chunks, found, strict=True))
    ]


def _rows(task: Problem, rows: np.ndarray) -> Problem:
    """Some of a task's candidates."""
    return task._replace(x=task.x[rows], y=task.y[rows], y_true=task.y_true[rows])


def _by_task(steps: list[Step], count: int) -> list[np.ndarray]:
    """The rows that were trained on, by task."""
    return [np.concatenate([s.train for s in steps if s.task == t]) for t in range(count)]


def _memory(config: ConfigDict, name: str, task: Problem) -> tuple[Memory, bool]:
    """The memory of a method, and whether what fills it can be compiled."""
    size, slots, classes = config.memory_size, config.stream.slots, task.num_classes
    if name == "reservoir":
        return Reservoir(size), True
    if name == "cbrs":
        return ClassBalancedReservoir(size, classes, label=lambda y: y["label"]), True
    if size % slots:
        raise UserError(f"memory_size is {size}: use a multiple of stream.slots, which is {slots}")
    if name == "pbcs":
        reduce = by_kernel(
            classes,
            embed=relu_tangents,
            label=lambda y: y["label"],
            ridge=config.continual.order_ridge,
            balanced=True,
        )
        return MergeReduce(slots, size // slots, reduce), True
    if name == "herding":
        return MergeReduce(slots, size // slots, _by_herding(classes)), True
    return MergeReduce(slots, size // slots, _by_baseline(config, name, task)), False


def _by_herding(classes: int) -> Reduce:
    """iCaRL's herding in the kernel that PBCS has too; the classes take turns."""

    def reduce(key, x, y, weights, size):
        del key, weights
        (rows,) = normalise(relu_tangents(x))
        ranks = herding_ranks(rows, y["label"], size, classes)
        return jnp.argsort(ranks * classes + y["label"])[:size]

    return reduce


def _by_baseline(config: ConfigDict, name: str, task: Problem) -> Reduce:
    """Any other method; samples count alike."""
    model = config_lib.make_net(
        config.model.name, config.model.width, config.model.dropout, task.num_classes
    )

    def reduce(key, x, y, weights, size):
        del weights
        labels = np.asarray(y["label"])
        data = Candidates(np.asarray(x), labels, task.num_classes, model, scale=False)
        return in_order(BASELINES[name])(key, data, size, **OPTIONS.get(name, {}))

    return reduce
