"""Sequences of tasks: what is the same, what is drawn anew, what is wrong with them."""

import doctest

import numpy as np
import pytest

from pbcs_jax.data import Problem, load, make_problem, tasks
from pbcs_jax.data.tasks import Corruption, permuted, split, stream
from pbcs_jax.errors import UserError

PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem(load("bundled"), seed=0, num_validation=100)


def test_permuted_tasks_are_the_same_images_in_another_order(problem):
    first, second = permuted(problem, 3, count=2, size=50)
    np.testing.assert_array_equal(first.indices, second.indices)
    assert not np.array_equal(first.x, second.x)
    for task in (first, second):
        back = np.argsort(task.order)
        by_row = {row: x for row, x in zip(problem.indices, problem.x, strict=True)}
        for row, x in zip(task.indices[:5], task.x, strict=False):
            np.testing.assert_array_equal(tasks.permute(x[None], back)[0], by_row[row])
        x, y = tasks.test_set(task)
        np.testing.assert_array_equal(tasks.permute(x, back), problem.x_test)
        np.testing.assert_array_equal(tasks.permute(task.x_val, back), problem.x_val)
        np.testing.assert_array_equal(y, problem.y_test)


def test_the_same_seed_gives_the_same_tasks_and_another_seed_others(problem):
    noise = Corruption("symmetric", 0.2)
    one, same, other = (permuted(problem, s, 2, 80, noise) for s in (1, 1, 2))
    for a, b, c in zip(one, same, other, strict=True):
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)
        assert not np.array_equal(a.indices, c.indices) and not np.array_equal(a.order, c.order)
    assert not np.array_equal(one[0].y, one[1].y)  # noise is drawn anew
    np.testing.assert_array_equal(one[0].y_true, one[1].y_true)


def test_wrong_labels_stay_within_the_task(problem):
    sequence = split(problem, 0, PAIRS, 300, Corruption("symmetric", 0.2))
    for classes, task in zip(PAIRS, sequence, strict=True):
        assert set(task.y.tolist()) == set(task.y_true.tolist()) == set(classes)
        assert 0.12 < np.mean(task.y != task.y_true) < 0.28
        assert set(task.y_test.tolist()) == set(task.y_val.tolist()) == set(classes)
        assert len(task.y_val) == 20 and len(task.x_val) == 20
    assert not set(sequence[0].indices) & set(sequence[1].indices)
    assert sum(len(task.y_test) for task in sequence) == len(problem.y_test)


@pytest.mark.parametrize("reading", ["thinned", "refilled"])
def test_unbalanced_classes_in_both_readings(problem, reading):
    (task,) = permuted(problem, 0, 1, 400, Corruption(factor=20.0, reading=reading))
    counts = np.bincount(task.y, minlength=10)
    if reading == "refilled":
        assert len(task.y) == 400 and counts[0] / counts[9] == pytest.approx(20, rel=0.35)
    else:
        assert len(task.y) < 200 and counts[0] > 25 and counts[9] <= 4
    assert np.all(np.diff(counts[[0, 3, 6, 9]]) < 0)


def test_a_stream_is_every_task_in_turn(problem):
    sequence = permuted(problem, 0, 2, 50)
    chunks = stream(sequence, 20)
    assert [task for task, _ in chunks] == [0, 0, 1, 1]
    assert np.concatenate([rows for _, rows in chunks[:2]]).tolist() == list(range(40))


@pytest.mark.parametrize(
    ("size", "corruption", "said"),
    [
        (0, Corruption(), "continual.task_size is 0: a task has 3900 candidates"),
        (3901, Corruption(), "continual.task_size is 3901"),
        (50, Corruption(reading="x"), "continual.imbalance is 'x': use one of thinned, refilled"),
        (3000, Corruption(factor=50.0, reading="refilled"), "which needs .* use 'thinned'"),
    ],
)
def test_what_cannot_be_is_refused(problem, size, corruption, said):
    with pytest.raises(UserError, match=said):
        permuted(problem, 0, 1, size, corruption)


def test_its_examples_are_right():
    assert doctest.testmod(tasks).failed == 0
