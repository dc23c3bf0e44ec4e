"""Looks at how samples are selected: the paper's analysis (sections 5.1 to 5.3 and Appendix A).

A summarization whose records hold more. What `analysis.kind` adds:

    selection         the gap between the classes of the coreset; sweep it over the size
    evolution         wrong labels over the outer steps, and the probabilities as a film
    time              processor seconds of a second selection, with all programs compiled
    gradient_mapping  its square norm over the outer steps, on a problem with few candidates
"""

import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax import npz
from pbcs_jax.baselines import BASELINES
from pbcs_jax.choices import Samples
from pbcs_jax.data import Problem
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments import gradient_mapping as mapping
from pbcs_jax.experiments import summarization
from pbcs_jax.experiments.features import keep_probabilities, kept_probabilities
from pbcs_jax.experiments.task import Chosen, Experiment, Task
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import network_objective
from pbcs_jax.report.analysis import (
    histogram_film,
    mapping_over_time,
    wrong_labels_over_time,
)
from pbcs_jax.report.files import write_npz
from pbcs_jax.report.page import Entry

MASKS = ("masks_1", "masks_2", "masks_4", "masks_8", "masks_16")
"""The methods of gradient_mapping: policy gradients from so many masks."""


def _task(config: ConfigDict, problem: Problem) -> Task:
    task = summarization.EXPERIMENT.task(config, problem)
    task = task._replace(baselines={**task.baselines, "pbcs_kernel": _by_kernel(config, problem)})
    kinds = {"selection": _selection, "evolution": _evolution, "time": _time}
    kinds["gradient_mapping"] = _gradient_mapping
    return kinds[config.analysis.kind](config, problem, task)


EXPERIMENT = Experiment(
    ("pbcs", *BASELINES, "pbcs_kernel", *MASKS), lambda config: "samples", _task
)


def _by_kernel(config: ConfigDict, problem: Problem):
    """PBCS with ridge regression in place of networks, with the signature of a baseline."""

    def select(key: jax.Array, candidates: Any, size: int) -> np.ndarray:
        own = ConfigDict(config.to_dict())
        own.selection.objective, own.coreset_size = "kernel", size
        return summarization.EXPERIMENT.task(own, problem).select(key, None, None).indices

    return select


def _selection(config: ConfigDict, problem: Problem, task: Task) -> Task:
    def columns(draws: list[np.ndarray]) -> dict[str, Any]:
        counts = [np.bincount(problem.y[d], minlength=problem.num_classes) for d in draws]
        gaps = [(c.max() - c.min()) / c.sum() for c in counts]
        return task.columns(draws) | {"class_gap": float(np.mean(gaps))}

    return task._replace(columns=columns)


def _evolution(config: ConfigDict, problem: Problem, task: Task) -> Task:
    wrong = problem.y != problem.y_true

    def entries(chosen: Chosen, folder: Path) -> list[Entry]:
        if "pbcs" not in chosen:
            return task.entries(chosen, folder)
        size = config.coreset_size
        kept = {0: np.full(task.n, size / task.n), **kept_probabilities(folder)}
        steps, s = list(kept), np.stack(list(kept.values()))
        best = np.argsort(-s[1:], axis=1, kind="stable")[:, :size]
        figure = wrong_labels_over_time(
            steps, (s @ wrong) / s.sum(1), np.append(wrong.mean(), wrong[best].mean(1))
        )
        film = histogram_film(steps, s, wrong)
        shown: list[Entry] = [
            ("Wrong labels over time", "Of the coreset, as s would choose it.", figure),
            ("Probabilities over time", "How many samples have which probability.", film),
        ]
        return shown + task.entries(chosen, folder)

    return task._replace(watch=keep_probabilities, entries=entries)


def _time(config: ConfigDict, problem: Problem, task: Task) -> Task:
    def play(name: str, key: jax.Array, folder: Path) -> dict[str, Any]:
        def choose(key: jax.Array) -> np.ndarray:
            if name == "pbcs":
                return task.select(key, None, None).indices
            return task.baselines[name](key, task.candidates, config.coreset_size)

        first, second = jax.random.split(key)
        choose(first)
        began, processor = time.monotonic(), time.process_time()
        indices = choose(second)
        return {
            "seconds": time.monotonic() - began,
            "coresets": [indices.tolist()],
            "columns": {"processor_seconds": time.process_time() - processor},
        }

    return task._replace(play=play, entries=lambda chosen, folder: [])


def _gradient_mapping(config: ConfigDict, problem: Problem, task: Task) -> Task:
    own, outer, model = config.analysis, config_lib.outer_settings(config), config.model

    @functools.cache
    def losses() -> jax.Array:
        net = config_lib.make_net(model.name, model.width, model.dropout, problem.num_classes)
        held_out = problem.validation
        evaluate = network_objective(
            as_model(net),
            jnp.asarray(problem.x),
            jnp.asarray(problem.y),
            Samples((task.n,)),
            config_lib.network(config),
            validation=held_out and tuple(map(jnp.asarray, held_out)),
        )
        return mapping.every_loss(config_lib.keys(config)[0], evaluate, task.n)

    def play(name: str, key: jax.Array, folder: Path) -> dict[str, Any]:
        began = time.monotonic()
        smooth = mapping.smoothness(losses())
        rate, count, size = own.step_size / smooth, int(name.split("_")[1]), config.coreset_size
        steps = outer.outer_steps
        found, last = mapping.trace(key, losses(), size, rate, count, steps, own.repeats)
        terms = mapping.bound(found, losses(), size, rate, smooth)
        write_npz(
            folder / "traces" / f"{name}.npz", **found._asdict(), first=terms[0], second=terms[1]
        )
        late = slice(-max(steps // 10, 1), None)
        return {
            "seconds": time.monotonic() - began,
            "coresets": [np.sort(np.argsort(-last[0])[:size]).tolist()],
            "columns": {
                "mapping_mean": float(found.mapping.mean()),
                "mapping_late": {
                    "mean": float(found.mapping[late].mean()),
                    "std": float(found.spread[late].mean()),
                },
                "bound": float(terms[0][-1] + terms[1][-1]),
                "expected_loss_late": float(found.loss[late].mean()),
                "decided": float(found.decided[-1]),
                "smoothness": smooth,
            },
        }

    def entries(chosen: Chosen, folder: Path) -> list[Entry]:
        traces = {name: npz.read(folder / "traces" / f"{name}.npz")[1] for name in chosen}
        caption = "Mean over the steps so far and over the runs; dashed and dotted, the two terms "
        caption += "of the theorem's bound, with the measured error of the gradient."
        return [("Gradient mapping", caption, mapping_over_time(traces))]

    return task._replace(play=play, entries=entries)
