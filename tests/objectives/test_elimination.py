"""Elimination against leaving out each sample and solving anew."""

import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.objectives.elimination import SHRINK, eliminate
from pbcs_jax.objectives.exchange import Learner, Outer
from pbcs_jax.objectives.ridge import encode

RIDGE = 0.1


def problem(n=20, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 30)) / 5
    y = np.arange(n) % classes
    targets = encode(jnp.asarray(y))
    free = jnp.ones(n, bool), jnp.zeros(n, int)
    data = Outer(targets, targets, jnp.full(n, 1 / n), *free)
    learner = Learner(
        jnp.asarray(rows, jnp.float32), jnp.asarray(rows, jnp.float32), RIDGE, jnp.asarray(1.0)
    )
    return learner, data, rows, np.asarray(targets, float)


def loss(rows, targets, chosen):
    phi = rows[chosen]
    dual = np.linalg.solve(phi @ phi.T + RIDGE * np.eye(len(phi)), targets[chosen])
    return np.mean(np.sum((rows @ phi.T @ dual - targets) ** 2, axis=1))


@pytest.mark.parametrize("seed", range(3))
def test_those_leave_that_are_missed_least(seed):
    learner, data, rows, targets = problem(seed=seed)
    order = eliminate((learner,), data, np.arange(20), 5)
    assert sorted(order) == list(range(20))
    left = list(range(20))
    for gone in order[: len(order) // SHRINK - 1 : -1]:  # the last of the order leaves first
        without = {i: loss(rows, targets, [j for j in left if j != i]) for i in left}
        assert without[gone] <= min(without.values()) + 1e-5
        left.remove(gone)


def test_a_stage_ends_with_what_is_to_stay():
    learner, data, _, _ = problem()
    order = eliminate((learner,), data, np.array([3, 7, 8, 11]), 4)
    assert order.tolist() == [3, 7, 8, 11]  # nothing is to leave
    order = eliminate((learner,), data, np.arange(0, 20, 2), 6)
    assert sorted(order) == list(range(0, 20, 2))
