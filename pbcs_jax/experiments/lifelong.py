"""The life of networks with a memory: they learn what a step brings, then the memory gets its part.

Seeds and betas go side by side. After every step all is kept in a file, from which a killed run
continues with the same bits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax import progress
from pbcs_jax.compute import blas
from pbcs_jax.data import Problem, tasks
from pbcs_jax.experiments import learner as learner_lib
from pbcs_jax.experiments.learner import Learner, Replay
from pbcs_jax.inner.train import Coreset
from pbcs_jax.replay import Memory, load, save
from pbcs_jax.replay.base import Rows

Sequence_ = list[Problem]


class Step(NamedTuple):
    """What one step brings, as rows of a task's candidates.

    Attributes:
      task: its number.
      train: `[m]`, to learn.
      add: `[k]`, for the memory, of the same number in all steps and seeds where `add` is compiled.
      ends: whether the task ends here, so that all tasks are tested.
    """

    task: int
    train: np.ndarray
    add: np.ndarray
    ends: bool = True


class Life(NamedTuple):
    """What stays the same from step to step.

    Attributes:
      sequences: tasks by seed.
      steps: by seed, `[S][T]`.
      memory: whose `y` is `{"label", "place"}`, the place among all candidates of the sequence.
      learner: of the networks.
      betas: `[B]`.
      stores_logits: whether outputs are stored with the samples (DER++).
      scaled: whether the memory's weights are to add up to the number of tasks in it, as those of a
        memory of tasks do.
      compiled: whether `memory.add` is compiled.
    """

    sequences: Sequence[Sequence_]
    steps: Sequence[Sequence[Step]]
    memory: Memory
    learner: Learner
    betas: tuple[float, ...]
    stores_logits: bool = False
    scaled: bool = False
    compiled: bool = True


class State(NamedTuple):
    """What changes.

    Attributes:
      variables: of the networks, `[S, B, ...]`.
      memories: states of the memory, one per seed.
      logits: `[S, B, N, C]` stored outputs by place, or N = 0.
      test: `[S, B, T, T]`, accuracy after task t on task j.
      held_out: `[S, B, T]`, the same on held-out data after the last task so far.
      places: `[S, T, size]`, what is in memory after each task; -1 where nothing is.
    """

    variables: Any
    memories: list[Any]
    logits: jax.Array
    test: jax.Array
    held_out: jax.Array
    places: jax.Array


def live(life: Life, key: jax.Array, folder: Path) -> State:
    """The state after the last step; from the file of an earlier run, if there is one."""
    state, done, count = _start(life, key), 0, len(life.steps[0])
    for t in range(count):
        if _file(folder, t).exists():
            state, done = load(_file(folder, t), state), t + 1
    add = jax.jit(life.memory.add) if life.compiled else life.memory.add
    with progress.shown(), progress.steps("Learning", count, done) as show:
        for t in range(done, count):
            state = _step(life, jax.random.fold_in(key, t + 1), t, state, add)
            save(_file(folder, t), state)
            _file(folder, t - 1).unlink(missing_ok=True)
            show(t + 1, lambda: "")
    return state


def _file(folder: Path, t: int) -> Path:
    return folder / f"after_step_{t}.npz"


def _start(life: Life, key: jax.Array) -> State:
    seeds, betas, first = len(life.sequences), len(life.betas), life.sequences[0]
    count, x = len(first), jnp.asarray(first[0].x[:1])
    variables = learner_lib.fresh(_keys(key, seeds), x, life.learner.model, betas)
    none = jnp.zeros(1, jnp.int32)
    empty = life.memory.init(x, {"label": none, "place": none})
    size = len(life.memory.rows(empty).weights)
    stored = sum(len(task.y) for task in first) if life.stores_logits else 0
    return State(
        variables,
        [empty] * seeds,
        jnp.zeros((seeds, betas, stored, first[0].num_classes)),
        jnp.zeros((seeds, betas, count, count)),
        jnp.zeros((seeds, betas, count)),
        jnp.full((seeds, count, size), -1, jnp.int32),
    )


def _step(life: Life, key: jax.Array, t: int, state: State, add) -> State:
    seeds = range(len(life.sequences))
    steps = [own[t] for own in life.steps]
    current = [s[step.task] for s, step in zip(life.sequences, steps, strict=True)]
    capacity = max(len(step.train) for own in life.steps for step in own)
    data = _stack(
        [_packed(task, step.train, capacity) for task, step in zip(current, steps, strict=True)]
    )
    keys = _keys(jax.random.fold_in(key, 0), len(seeds))
    replay = _replay(life, state, steps[0].task)
    variables = learner_lib.learn(
        life.learner, keys, jnp.asarray(life.betas, jnp.float32), state.variables, data, replay
    )
    memories = []
    with blas.one_thread():
        for s, (task, step) in enumerate(zip(current, steps, strict=True)):
            places = _first_place(life.sequences[s], step.task) + step.add
            y = {"label": jnp.asarray(task.y[step.add]), "place": jnp.asarray(places, jnp.int32)}
            own = jax.random.fold_in(jax.random.fold_in(key, 1), s)
            memories.append(add(own, state.memories[s], jnp.asarray(task.x[step.add]), y))
    state = state._replace(variables=variables, memories=memories)
    if life.stores_logits:
        state = state._replace(logits=_with_outputs(life, state, steps))
    return _tested(life, state, steps[0].task) if steps[0].ends else state


def _replay(life: Life, state: State, task: int) -> Replay:
    rows = _stack([life.memory.rows(own) for own in state.memories])
    x, y, weights = rows
    if life.scaled:
        total = jnp.maximum(jnp.sum(weights, axis=1, keepdims=True), 1e-6)
        weights = weights / total * max(task, 1)
    outputs = None
    if life.stores_logits:
        outputs = jax.vmap(lambda table, at: table[:, at])(state.logits, y["place"])
    return Replay(Rows(x, y["label"], weights), outputs)


def _with_outputs(life: Life, state: State, steps: Sequence[Step]) -> jax.Array:
    """The stored outputs, with those of the samples that have just come."""
    pairs = list(zip(life.sequences, steps, strict=True))
    x = jnp.stack([jnp.asarray(s[step.task].x[step.add]) for s, step in pairs])
    places = jnp.stack([jnp.asarray(_first_place(s, step.task) + step.add) for s, step in pairs])
    outputs = learner_lib.logits(life.learner.model, state.variables, x)
    put = lambda table, at, own: table.at[:, at].set(own)  # noqa: E731
    return jax.vmap(put)(state.logits, places, outputs)


def _tested(life: Life, state: State, now: int) -> State:
    """The state with the accuracies after task `now`, and what is in memory then."""
    test, held_out = np.array(state.test), np.array(state.held_out)
    model = life.learner.model
    # One seed after another: a test set per task and seed at once would be copied many times.
    for s, sequence in enumerate(life.sequences):
        own = jax.tree.map(lambda leaf, s=s: leaf[s], state.variables)
        for j, task in enumerate(sequence[: now + 1]):
            test[s, :, now, j] = learner_lib.accuracy(model, own, *tasks.test_set(task))
            if task.validation is not None:
                held_out[s, :, j] = learner_lib.accuracy(model, own, *task.validation)
    rows = [life.memory.rows(own) for own in state.memories]
    places = [jnp.where(r.weights > 0, r.y["place"], -1) for r in rows]
    return state._replace(
        test=jnp.asarray(test),
        held_out=jnp.asarray(held_out),
        places=state.places.at[:, now].set(jnp.stack(places)),
    )


def _packed(task: Problem, rows: np.ndarray, capacity: int) -> Coreset:
    fill = np.zeros(capacity - len(rows), int)
    all_rows = np.concatenate([rows, fill])
    weights = (np.arange(capacity) < len(rows)).astype(np.float32)
    return Coreset(task.x[all_rows], task.y[all_rows], weights)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _keys(key: jax.Array, count: int) -> jax.Array:
    """One key per seed; those of the first ones do not depend on how many there are."""
    return jnp.stack([jax.random.fold_in(key, s) for s in range(count)])


def _first_place(sequence: Sequence[Problem], task: int) -> int:
    return sum(len(before.y) for before in sequence[:task])
