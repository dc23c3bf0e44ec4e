"""Feature selection: choose inputs by each method, judge each by a network that sees only those."""

from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from ml_collections import ConfigDict

from pbcs_jax import npz
from pbcs_jax.baselines.inputs import INPUT_BASELINES, InputCandidates
from pbcs_jax.choices import Inputs
from pbcs_jax.choices import inputs as inputs_lib
from pbcs_jax.data import Problem
from pbcs_jax.errors import DamagedError, UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.task import Chosen, Experiment, Task
from pbcs_jax.outer import loop
from pbcs_jax.report.files import write_npz
from pbcs_jax.report.inputs import chosen_inputs, input_probabilities, probability_film
from pbcs_jax.report.page import Entry
from pbcs_jax.report.selection import chosen_table
from pbcs_jax.select import select_features


def _task(config: ConfigDict, problem: Problem) -> Task:
    groups = patches(problem.x.shape[1:], config.inputs.patch)
    n = int(groups.max()) + 1
    outer = config_lib.loop_settings(config, n)
    noise = f", noise {config.inputs.noise:g}" if config.inputs.noise else ""
    plan = (
        f"{len(problem.y)} samples of {groups.size} inputs{noise}",
        f"{config.num_inputs} of {n}, by {config.selection.objective}, {outer.outer_steps} outer "
        f"steps x {outer.num_masks} masks, estimator {outer.estimator}",
    )
    return Task(
        n=n,
        candidates=InputCandidates(problem.x, problem.y, groups, scale=False),
        baselines=INPUT_BASELINES,
        select=_selection(config, problem, groups, outer),
        choice=lambda size: Inputs(groups),
        plan=plan,
        facts=[
            ("Samples", len(problem.y)),
            ("Noise on the inputs", f"{config.inputs.noise:g}"),
            ("Selected by", config.selection.objective),
        ],
        entries=lambda chosen, folder: _entries(chosen, folder, problem, groups, _unit(config)),
        outer_on="selected",
        watch=keep_probabilities,
    )


def _unit(config: ConfigDict) -> str:
    return "inputs" if config.inputs.patch == 1 else "patches"


EXPERIMENT = Experiment(("pbcs", *INPUT_BASELINES), _unit, _task)


def patches(shape: tuple[int, ...], side: int) -> np.ndarray:
    """The number of the square patch that each input of a picture belongs to.

    >>> patches((4, 4), 2).tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    """
    if side == 1:
        return inputs_lib.numbers(None, shape)
    if len(shape) < 2 or shape[0] % side or shape[1] % side:
        raise UserError(
            f"inputs.patch is {side}: a sample has shape {shape}, which does not divide into "
            "squares of that side; use 1, or a side that divides height and width"
        )
    rows, columns = np.arange(shape[0]) // side, np.arange(shape[1]) // side
    numbers = rows[:, None] * (shape[1] // side) + columns
    return np.broadcast_to(numbers.reshape(shape[:2] + (1,) * (len(shape) - 2)), shape)


def _selection(config: ConfigDict, problem: Problem, groups: np.ndarray, outer: Any):
    model = config.model
    net = config_lib.make_net(model.name, model.width, model.dropout, problem.num_classes)
    is_kernel = config.selection.objective == "kernel"
    objective = config_lib.kernel(config) if is_kernel else config_lib.network(config)

    def select(key, start, callback):
        return select_features(
            key,
            problem.x,
            problem.y,
            net,
            config.num_inputs,
            problem.validation,
            groups=groups,
            objective=objective,
            compute=config_lib.compute(config),
            start=start,
            callback=callback,
            **vars(outer) | {"smooth": config.inputs.smooth},
        )

    return select


def keep_probabilities(state: loop.State, folder: Path) -> None:
    """For the film of the probabilities over time."""
    file = folder / "probabilities" / f"{int(state.step):06d}.npz"
    write_npz(file, probabilities=np.asarray(state.probabilities))


def kept_probabilities(folder: Path) -> dict[int, np.ndarray]:
    """By step; a file that cannot be read is left out of the film."""
    maps = {}
    for file in sorted((folder / "probabilities").glob("[0-9]*.npz")):
        try:
            maps[int(file.stem)] = npz.read(file)[1]["probabilities"]
        except (DamagedError, KeyError, ValueError) as error:
            logging.warning("file %r is left out of the film: %s", str(file), error)
    return maps


def _entries(
    chosen: Chosen, folder: Path, problem: Problem, groups: np.ndarray, unit: str
) -> list[Entry]:
    entries: list[Entry] = []
    if problem.images is not None:
        examples = [int(np.flatnonzero(problem.y == c)[0]) for c in np.unique(problem.y)]
        masks = {name: np.isin(groups, drawn[0]) for name, drawn in chosen.items()}
        entries.append(
            (
                "The chosen inputs",
                "White is chosen, black is chosen where the picture has ink; one sample of each "
                "class, as it was before any noise. For a random method, its first draw.",
                chosen_inputs(masks, problem.images[examples]),
            )
        )
    if "pbcs" not in chosen:
        return entries
    _, coreset = npz.read(folder / "coreset.npz")
    maps = {step: values[groups] for step, values in kept_probabilities(folder).items()}
    if problem.images is not None and maps:
        film = probability_film(list(maps), np.stack(list(maps.values())).mean(-1))
        caption = "The probability of each input over the outer steps; white is 1."
        entries.append(("Probabilities over time", caption, film))
    elif problem.images is None and groups.ndim == 1:
        bars = input_probabilities(coreset["probabilities"][groups], chosen["pbcs"][0])
        caption = "The probability of each input; the chosen ones are in colour."
        entries.append(("Probabilities at the end", caption, bars))
    indices, probabilities = coreset["indices"], coreset["probabilities"][coreset["indices"]]
    names = problem.names
    more = {"name": np.array(names)[indices]} if names is not None and groups.ndim == 1 else {}
    return [*entries, chosen_table(unit, indices, probabilities, more)]
