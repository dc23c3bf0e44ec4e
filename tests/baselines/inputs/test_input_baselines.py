"""Baselines that choose inputs, each against slow and obvious NumPy."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.feature_selection import mutual_info_classif

from pbcs_jax.baselines.inputs import INPUT_BASELINES, InputCandidates
from pbcs_jax.baselines.inputs.f_score import statistics
from pbcs_jax.errors import UserError
from pbcs_jax.objectives import input_kernel


def problem(n=80, d=10, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)).astype(np.float32)
    x[:, 5] = x[:, 2] + 0.1 * rng.standard_normal(n)  # nearly the same input twice
    x[:, 7] = 3.0  # constant
    y = (x[:, 2] + 0.5 * x[:, 8] > 0).astype(int) + (x[:, 8] > 1)
    return InputCandidates(x, y)


@pytest.mark.parametrize("name", INPUT_BASELINES)
@pytest.mark.parametrize("size", [1, 4, 10])
def test_every_one_gives_sorted_distinct_indices(name, size):
    found = INPUT_BASELINES[name](jax.random.key(0), problem(), size)
    assert found.shape == (size,) and np.all(np.diff(found) > 0)
    assert found.min() >= 0 and found.max() < 10


@pytest.mark.parametrize("name", INPUT_BASELINES)
@pytest.mark.parametrize("size", [0, 11])
def test_every_one_says_what_sizes_there_are(name, size):
    with pytest.raises(UserError, match="at most 10"):
        INPUT_BASELINES[name](jax.random.key(0), problem(), size)


@pytest.mark.parametrize("name", INPUT_BASELINES)
def test_every_one_chooses_groups_whole(name):
    data = dataclasses.replace(problem(), groups=np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]))
    assert len(INPUT_BASELINES[name](jax.random.key(0), data, 2)) == 2
    with pytest.raises(UserError, match="at most 5"):
        INPUT_BASELINES[name](jax.random.key(0), data, 6)


def slow_f(column, y):
    means = [column[y == c].mean() for c in np.unique(y)]
    counts = [np.sum(y == c) for c in np.unique(y)]
    between = sum(n * (m - column.mean()) ** 2 for n, m in zip(counts, means, strict=True))
    within = sum(np.sum((column[y == c] - column[y == c].mean()) ** 2) for c in np.unique(y))
    if within == 0:
        return 0.0
    return (between / (len(means) - 1)) / (within / (len(y) - len(means)))


def test_f_score():
    data = problem()
    slow = [slow_f(column.astype(float), data.y) for column in data.x.T]
    np.testing.assert_allclose(statistics(data), slow, rtol=1e-4)
    found = INPUT_BASELINES["f_score"](jax.random.key(0), data, 3)
    assert found.tolist() == sorted(np.argsort(slow)[-3:].tolist())


def test_mutual_information():
    """scikit-learn's own scores, with the seed that the key stands for; a constant has none."""
    data, key = problem(), jax.random.key(0)
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    varies = np.delete(np.arange(10), 7)
    scores = mutual_info_classif(data.x[:, varies], data.y, random_state=seed)
    order = varies[np.argsort(-scores)]
    for size in (1, 3, 6):
        found = INPUT_BASELINES["mutual_information"](key, data, size)
        assert found.tolist() == sorted(order[:size].tolist())


def test_mrmr():
    data = problem()
    relevance = np.array([slow_f(column.astype(float), data.y) for column in data.x.T])
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < 5:
        best, best_score = -1, -np.inf
        for j in range(10):
            if j in chosen:
                continue
            alike = []
            for i in chosen:
                a, b = data.x[:, i] - data.x[:, i].mean(), data.x[:, j] - data.x[:, j].mean()
                size = np.linalg.norm(a) * np.linalg.norm(b)
                alike.append(abs(a @ b) / size if size else 0.0)
            score = relevance[j] / max(np.mean(alike), 1e-3)
            if score > best_score:
                best, best_score = j, score
        chosen.append(best)
    assert INPUT_BASELINES["mrmr"](jax.random.key(0), data, 5).tolist() == sorted(chosen)
    # The input that is there twice is wanted once, until nothing better is left.
    assert len({2, 5} & set(INPUT_BASELINES["mrmr"](jax.random.key(0), data, 2))) == 1


def test_greedy():
    """Each step takes the most negative gradient, here by finite differences."""
    data = problem(n=40)
    rows = input_kernel.gather(data.x, data.y)
    key = jax.random.key(3)
    choose_key, step_key = jax.random.split(key)
    bandwidth, ridge = input_kernel.choose(choose_key, rows, 3)
    evaluate = input_kernel.input_kernel_objective(rows, input_kernel.InputKernel(bandwidth, ridge))
    chosen: list[int] = []
    for step in range(3):
        start = np.full(10, 1e-4, np.float32)
        start[chosen] = 1
        size = 1e-3 if chosen else 2e-5
        masks = np.concatenate([start + size * np.eye(10), start - size * np.eye(10)])
        losses = evaluate(jax.random.fold_in(step_key, step), masks.astype(np.float32)).losses
        slopes = np.array(losses[:10] - losses[10:])
        slopes[chosen] = np.inf
        chosen.append(int(np.argmin(slopes)))
    found = INPUT_BASELINES["greedy"](key, data, 3)
    assert found.tolist() == sorted(chosen)


def test_uniform_draws_are_uniform():
    keys = jax.random.split(jax.random.key(0), 300)
    counts = np.bincount(
        np.concatenate([INPUT_BASELINES["uniform"](key, problem(), 2) for key in keys])
    )
    assert counts.sum() == 600 and np.all(np.abs(counts - 60) < 40)
