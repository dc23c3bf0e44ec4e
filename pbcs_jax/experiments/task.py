"""What an experiment supplies; the rest of a run is the same for all of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from pbcs_jax.choices import Choice
from pbcs_jax.data import Problem
from pbcs_jax.outer import loop
from pbcs_jax.report.page import Entry
from pbcs_jax.result import Result

Chosen = dict[str, list[np.ndarray]]
"""Indices by method, one array per draw."""


class Task(NamedTuple):
    """What is chosen, from what, and how it is shown.

    Attributes:
      n: how many there are to choose from.
      candidates: what the baselines choose from.
      baselines: by name, `(key, candidates, size) -> indices`.
      select: `(key, start, callback) -> Result`, the library's own method; of objective 'auto'
        `(key, plan, on_plan) -> Result`.
      choice: `size -> Choice`, what the judges' masks do.
      plan: two lines: the data, and the selection.
      facts: of the page, as (label, value).
      entries: `(chosen, folder) -> further figures and tables of the page`.
      outer_on: what the judges see of the test set, see `Network`.
      arrays: `indices -> further arrays of coreset.npz`.
      columns: `draws -> further columns of the table of methods`.
      watch: `(state, folder)`, called at every checkpoint.
      play: `(method, key, folder) -> record`, where choosing and judging go hand in hand; it stands
        for both, and the record has `columns` too.
      caption: of the accuracies, where they are not those of training on what is chosen.
      title: of the page, in place of the unit and the data.
    """

    n: int
    candidates: Any
    baselines: Mapping[str, Callable[[jax.Array, Any, int], np.ndarray]]
    select: Callable[[jax.Array, Any, Any], Result]
    choice: Callable[[int], Choice]
    plan: tuple[str, str]
    facts: list[tuple[str, Any]]
    entries: Callable[[Chosen, Path], list[Entry]]
    outer_on: str = "all"
    arrays: Callable[[np.ndarray], dict[str, np.ndarray]] = lambda chosen: {}
    columns: Callable[[list[np.ndarray]], dict[str, Any]] = lambda draws: {}
    watch: Callable[[loop.State, Path], None] = lambda state, folder: None
    play: Callable[[str, jax.Array, Path], dict[str, Any]] | None = None
    caption: str = ""
    title: str = ""


class Experiment(NamedTuple):
    """An experiment.

    Attributes:
      methods: their names.
      unit: `config -> what is chosen`, such as 'samples'.
      task: what the experiment makes of a config and the data.
    """

    methods: tuple[str, ...]
    unit: Callable[[ConfigDict], str]
    task: Callable[[ConfigDict, Problem], Task]
