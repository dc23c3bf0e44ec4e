"""Continual learning: a network learns task after task, and a small memory keeps earlier ones.

After t tasks the memory has the first floor(size / t) samples of the order that a method made of
each. Every method meets the same networks and the same random numbers. Held-out data, never the
test set, choose beta.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax import progress
from pbcs_jax.baselines import BASELINES
from pbcs_jax.choices import Samples
from pbcs_jax.data import Problem, tasks
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.learner import Learner
from pbcs_jax.experiments.lifelong import Life, State, Step, live
from pbcs_jax.experiments.rehearsal import Pick, picker
from pbcs_jax.experiments.task import Chosen, Experiment, Task
from pbcs_jax.nets.model import as_model
from pbcs_jax.replay import ClassBalancedReservoir, Memory, Reservoir, TaskMemory
from pbcs_jax.report.continual import accuracy_over_time, forgetting_matrix, memory_over_time
from pbcs_jax.report.files import write_npz
from pbcs_jax.report.page import Entry

OUTSIDE = ("der++",)
"""Methods that do not follow the protocol: they store outputs too."""
RESERVOIRS = ("reservoir", "cbrs")


def make_tasks(config: ConfigDict, problem: Problem, seed: int) -> list[Problem]:
    """The tasks of one seed."""
    given = config.continual
    corruption = tasks.Corruption(
        config.noise.kind, config.noise.rate, config.imbalance.factor, given.imbalance
    )
    stream = config.seed * 1000 + seed
    if given.kind == "permuted":
        return tasks.permuted(problem, stream, given.tasks, given.task_size, corruption)
    classes = np.array_split(np.arange(problem.num_classes), given.tasks)
    split = [own.tolist() for own in classes]
    return tasks.split(problem, stream, split, given.task_size, corruption)


def make_task(config: ConfigDict, problem: Problem) -> Task:
    seeds = range(config.evaluation.num_seeds)
    sequences = [make_tasks(config, problem, seed) for seed in seeds]
    first = sequences[0]
    n = sum(len(task.y) for task in first)
    wrong = np.mean(np.concatenate([task.y != task.y_true for task in first]))
    given = config.continual
    return Task(
        n=n,
        candidates=None,
        baselines={},
        select=lambda *_: None,  # type: ignore[arg-type]
        choice=lambda size: Samples((size,)),
        plan=(
            f"{given.tasks} tasks, {n} candidates in all ({wrong:.0%} wrong labels)",
            f"memory of {config.memory_size}, trained on {given.train_on}, betas {given.betas}",
        ),
        facts=[
            ("Tasks", given.tasks),
            ("Wrong labels", f"{wrong:.1%}"),
            ("Trained on", given.train_on),
            (
                "Outside of the protocol",
                ", ".join(m for m in config.methods if m in OUTSIDE) or "-",
            ),
        ],
        entries=lambda chosen, folder: entries(chosen, folder, first),
        play=lambda name, key, folder: _play(config, sequences, name, key, folder),
        caption="Test accuracy over all tasks after the last one.",
        title=f"Continual learning on {problem.name}",
    )


METHODS = ("pbcs", *BASELINES, *RESERVOIRS, *OUTSIDE)
EXPERIMENT = Experiment(METHODS, lambda config: "samples", make_task)


def _play(
    config: ConfigDict, sequences: list[list[Problem]], name: str, key: jax.Array, folder: Path
) -> dict[str, Any]:
    """The record of one method: it chooses of all tasks, then the networks learn these."""
    pick_key, life_key = jax.random.split(key)
    partial = folder / "partial" / name
    found = []
    with progress.shown(), progress.steps(f"Choosing by {name}", len(sequences)) as show:
        for s, sequence in enumerate(sequences):
            own = jax.random.fold_in(pick_key, s)
            found.append(_picked(config, name, own, sequence, partial / f"picks_{s}.npz"))
            show(s + 1, lambda: "")
    picks = [own for own, _ in found]
    began = time.monotonic()
    # The networks of all methods have the same random numbers.
    life = _life(config, sequences, name, picks)
    state = live(life, life_key, partial)
    trained = [[step.train for step in own] for own in life.steps]
    return record(config, state, sequences, trained) | {
        "seconds": float(np.mean([seconds for _, seconds in found])),
        "judging_seconds": time.monotonic() - began,
    }


def _picked(
    config: ConfigDict, name: str, key: jax.Array, sequence: Sequence[Problem], file: Path
) -> tuple[list[Pick], float]:
    """What one seed's tasks leave, from a file if an earlier run has chosen; and its seconds."""
    if not file.exists():
        began = time.monotonic()
        pick = picker(config, name if name in ("pbcs", *BASELINES) else "uniform")
        arrays: dict[str, np.ndarray] = {}
        for t, task in enumerate(sequence):
            own = pick(jax.random.fold_in(key, t), task, config.memory_size)
            arrays |= {f"kept_{t}": own.kept, f"order_{t}": own.order}
        write_npz(file, seconds=np.array(time.monotonic() - began), **arrays)
    with np.load(file, allow_pickle=False) as stored:
        picks = [Pick(stored[f"kept_{t}"], stored[f"order_{t}"]) for t in range(len(sequence))]
        return picks, float(stored["seconds"])


def make_learner(config: ConfigDict, rows: int, num_classes: int) -> Learner:
    """How the networks learn a task of so many rows: as many steps, however many are kept."""
    given = config.evaluation
    net = config_lib.make_net(given.model, given.width, given.dropout, num_classes)
    inner = config_lib.evaluation_settings(config, rows)
    own = config.continual
    return Learner(as_model(net), inner, own.der_alpha, own.side_by_side)


def _life(config: ConfigDict, sequences, name: str, picks: list[list[Pick]]) -> Life:
    given, size, classes = config.continual, config.memory_size, sequences[0][0].num_classes
    memories: dict[str, Memory] = {
        "reservoir": Reservoir(size),
        "cbrs": ClassBalancedReservoir(size, classes, label=lambda y: y["label"]),
    }
    steps: list[list[Step]] = []
    for sequence, own in zip(sequences, picks, strict=True):
        steps.append([])
        for t, (task, pick) in enumerate(zip(sequence, own, strict=True)):
            train = pick.kept if given.train_on == "selected" else np.arange(len(task.y))
            steps[-1].append(Step(t, train, train if name in memories else pick.order))
    rows = max(len(task.y) for sequence in sequences for task in sequence)
    return Life(
        sequences,
        steps,
        memories.get(name, TaskMemory(size, given.tasks)),
        make_learner(config, rows, classes),
        tuple(given.betas),
        stores_logits=name in OUTSIDE,
        scaled=name in memories,
    )


def record(
    config: ConfigDict, state: State, sequences: list[list[Problem]], steps: list[list[np.ndarray]]
) -> dict[str, Any]:
    """What a run keeps of one method; beta is that with the best held-out accuracy.

    Args:
      config: of the run.
      state: after the last step.
      sequences: tasks by seed.
      steps: what was trained on, by seed and task.
    """
    test, places = np.asarray(state.test), np.asarray(state.places)
    held_out = np.asarray(state.held_out).mean(axis=(0, 2))
    best = int(np.argmax(held_out))
    matrix = test[:, best]  # [S, T, T]
    final = matrix[:, -1].mean(axis=1)
    count = matrix.shape[1]
    lost = matrix[:, :-1].max(axis=1)[:, :-1] - matrix[:, -1, :-1] if count > 1 else np.zeros(1)
    wrong = [np.concatenate([t.y != t.y_true for t in sequence]) for sequence in sequences]
    in_memory = [w[p[-1][p[-1] >= 0]].mean() for w, p in zip(wrong, places, strict=True)]
    in_training = [
        np.mean(np.concatenate([(t.y != t.y_true)[r] for t, r in zip(sequence, own, strict=True)]))
        for sequence, own in zip(sequences, steps, strict=True)
    ]
    columns = {"beta": config.continual.betas[best], "forgetting": 100 * float(np.mean(lost))}
    if config.noise.kind != "none":
        columns["wrong_labels"] = float(np.mean(in_memory))
        columns["wrong_labels_in_training"] = 100 * float(np.mean(in_training))
    return {
        "runs": {config.evaluation.model: final.round(6).tolist()},
        "coresets": [own[-1][own[-1] >= 0].tolist() for own in places],
        "columns": columns,
        "matrix": matrix.round(5).tolist(),
        "by_beta": {
            str(beta): {
                "test_accuracy": test[:, b, -1].mean(axis=1).round(6).tolist(),
                "held_out_accuracy": float(held_out[b]),
            }
            for b, beta in enumerate(config.continual.betas)
        },
        "places": places[0].tolist(),
    }


def entries(chosen: Chosen, folder: Path, sequence: Sequence[Problem]) -> list[Entry]:
    """Figures of a page: accuracy per task over time, and what is in memory."""
    records = {
        name: json.loads((folder / "methods" / f"{name}.json").read_text()) for name in chosen
    }
    matrices = {name: np.array(record["matrix"]) for name, record in records.items()}
    found: list[Entry] = [
        (
            "Accuracy over time",
            "Mean over the tasks learnt so far; bars are the standard deviation over seeds.",
            accuracy_over_time(matrices),
        ),
        (
            "Forgetting matrix",
            "Accuracy (%) on each task, in columns, after each task, in rows; mean over seeds.",
            forgetting_matrix({name: m.mean(axis=0) for name, m in matrices.items()}),
        ),
    ]
    images = [task.images for task in sequence]
    if all(own is not None for own in images):
        together = np.concatenate([own for own in images if own is not None])
        wrong = np.concatenate([task.y != task.y_true for task in sequence])
        name = "pbcs" if "pbcs" in records else next(iter(records))
        places = np.array(records[name]["places"])
        caption = f"The memory of {name} after each task, first seed; red: a wrong label."
        found.append(("Memory over time", caption, memory_over_time(places, together, wrong)))
    return found
