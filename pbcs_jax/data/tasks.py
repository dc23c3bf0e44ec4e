"""Sequences of tasks for continual learning, and the streams that they make.

Every task is a `Problem` of its own: its candidates, possibly corrupted, clean held-out data, and
its part of the test set. All tasks share the labels of one head.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pbcs_jax.data.corruption import imbalance, label_noise
from pbcs_jax.data.problem import Problem
from pbcs_jax.errors import UserError, check_known, check_number

KINDS = ("permuted", "split")
READINGS = ("thinned", "refilled")


class Corruption(NamedTuple):
    """What is wrong with a task's candidates, drawn anew for each task.

    Attributes:
        noise_kind: see `label_noise`.
        noise_rate: see `label_noise`.
        factor: the largest class over the smallest; 1 leaves the classes alone.
        reading: how a task gets unbalanced classes. `thinned`: of its samples only the shares of
            `imbalance` are left, so that it has fewer; `refilled`: it has as many samples as ever,
            drawn in those proportions.
    """

    noise_kind: str = "none"
    noise_rate: float = 0.0
    factor: float = 1.0
    reading: str = "thinned"


CLEAN = Corruption()


def permuted(
    problem: Problem, seed: int, count: int, size: int, corruption: Corruption = CLEAN
) -> list[Problem]:
    """PermMNIST: the same candidates in all tasks, their inputs permuted anew in each.

    The first task is permuted too. Held-out data and test set are permuted alike; the test set is a
    copy per task, made where `inputs` of the task is applied, see `test_set`.

    Args:
        problem: clean, with at least `size` candidates.
        seed: of every random choice.
        count: how many tasks.
        size: candidates of each task.
        corruption: of the candidates.

    Example:
        >>> from pbcs_jax.data import load, make_problem
        >>> tasks = permuted(make_problem(load("bundled"), seed=0), 0, count=2, size=10)
        >>> [task.x.shape for task in tasks], tasks[0].y.tolist() == tasks[1].y.tolist()
        ([(10, 28, 28, 1), (10, 28, 28, 1)], True)
    """
    check_number("tasks", count, least=1, whole=True)
    first, *streams = np.random.SeedSequence(seed).spawn(1 + 2 * count)
    members = np.random.default_rng(first).permutation(len(problem.y))
    found = []
    for order_stream, own in zip(streams[:count], streams[count:], strict=True):
        order = np.random.default_rng(order_stream).permutation(int(np.prod(problem.x.shape[1:])))
        task = _task(problem, members, size, corruption, own)
        x_val = None if task.x_val is None else permute(task.x_val, order)
        found.append(task._replace(x=permute(task.x, order), x_val=x_val, order=order))
    return found


def split(
    problem: Problem,
    seed: int,
    classes: Sequence[Sequence[int]],
    size: int,
    corruption: Corruption = CLEAN,
) -> list[Problem]:
    """SplitMNIST and its like: each task has some of the classes, with their labels as they are.

    Labels are flipped, and classes thinned, within the task. Held-out data are those of the task's
    classes.

    Args:
        problem: clean.
        seed: of every random choice.
        classes: of each task.
        size: candidates of each task, drawn from its classes; 0 takes all of them.
        corruption: of the candidates.

    Example:
        >>> from pbcs_jax.data import load, make_problem
        >>> tasks = split(make_problem(load("bundled"), seed=0), 0, [(0, 1), (2, 3)], size=50)
        >>> [np.unique(task.y).tolist() for task in tasks], len(tasks[1].y_test)
        ([[0, 1], [2, 3]], 200)
    """
    first, *streams = np.random.SeedSequence(seed).spawn(1 + len(classes))
    shuffled = np.random.default_rng(first).permutation(len(problem.y))
    found = []
    for own_classes, stream in zip(classes, streams, strict=True):
        members = shuffled[np.isin(problem.y[shuffled], own_classes)]
        task = _task(problem, members, size or len(members), corruption, stream, list(own_classes))
        in_test = np.isin(problem.y_test, own_classes)
        task = task._replace(x_test=problem.x_test[in_test], y_test=problem.y_test[in_test])
        if task.x_val is not None and task.y_val is not None:
            held_out = np.isin(task.y_val, own_classes)
            task = task._replace(x_val=task.x_val[held_out], y_val=task.y_val[held_out])
        found.append(task)
    return found


def stream(tasks: Sequence[Problem], chunk: int) -> list[tuple[int, np.ndarray]]:
    """The tasks one after another in chunks: `[(task, rows [chunk])]`; a short rest is left out.

    Example:
        >>> from pbcs_jax.data import load, make_problem
        >>> tasks = permuted(make_problem(load("bundled"), seed=0), 0, count=2, size=10)
        >>> [(task, rows.tolist()) for task, rows in stream(tasks, 4)]
        [(0, [0, 1, 2, 3]), (0, [4, 5, 6, 7]), (1, [0, 1, 2, 3]), (1, [4, 5, 6, 7])]
    """
    check_number("chunk", chunk, least=1, whole=True)
    return [
        (number, np.arange(start, start + chunk))
        for number, task in enumerate(tasks)
        for start in range(0, len(task.y) - chunk + 1, chunk)
    ]


def test_set(task: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The task's part of the test set, `(x [m, ...], y [m])`, permuted as the task is."""
    x = task.x_test if task.order is None else permute(task.x_test, task.order)
    return x, task.y_test


def permute(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`x [n, ...]` with the numbers of every sample in another order."""
    return np.take(x.reshape(len(x), -1), order, axis=1).reshape(x.shape)


def _task(
    problem: Problem,
    members: np.ndarray,
    size: int,
    corruption: Corruption,
    stream: np.random.SeedSequence,
    classes: list[int] | None = None,
) -> Problem:
    """The first `size` of the candidates `members`, corrupted; labels only among `classes`."""
    check_known("continual.imbalance", corruption.reading, READINGS)
    if not 1 <= size <= len(members):
        raise UserError(
            f"continual.task_size is {size}: a task has {len(members)} candidates; use at least 1 "
            "and at most that many"
        )
    for_imbalance, for_noise = (np.random.default_rng(s) for s in stream.spawn(2))
    names = np.arange(problem.num_classes) if classes is None else np.asarray(classes)
    codes = np.searchsorted(names, problem.y_true)
    if corruption.factor > 1 and corruption.reading == "refilled":
        members = _in_proportion(members, codes, size, corruption.factor, len(names))
    rows = members[:size]
    if corruption.factor > 1 and corruption.reading == "thinned":
        rows = rows[imbalance(for_imbalance, codes[rows], corruption.factor, len(names))]
    kind, rate = corruption.noise_kind, corruption.noise_rate
    y = names[label_noise(for_noise, codes[rows], kind, rate, len(names))].astype(np.int32)
    images = None if problem.images is None else problem.images[rows]
    return problem._replace(
        x=problem.x[rows],
        y=y,
        y_true=problem.y_true[rows],
        images=images,
        indices=problem.indices[rows],
    )


def _in_proportion(
    members: np.ndarray, codes: np.ndarray, size: int, factor: float, num_classes: int
) -> np.ndarray:
    """`[size]` of `members`, of class c a share of factor^(-c / (C - 1)), in their order."""
    shares = factor ** (-np.arange(num_classes) / (num_classes - 1))
    wanted = np.maximum(1, np.floor(size * shares / shares.sum())).astype(int)
    wanted[0] += size - wanted.sum()
    available = np.bincount(codes[members], minlength=num_classes)
    if np.any(wanted > available):
        c = int(np.argmax(wanted > available))
        raise UserError(
            f"continual.imbalance is 'refilled', which needs {wanted[c]} candidates of a class "
            f"that has {available[c]}: use 'thinned', a smaller task_size, or more data"
        )
    chosen = [members[codes[members] == c][: wanted[c]] for c in range(num_classes)]
    kept = np.concatenate(chosen)
    return members[np.isin(members, kept)]
