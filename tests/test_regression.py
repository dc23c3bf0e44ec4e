"""Regression with one option, on a real table: better than random draws."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import pbcs_jax as pbcs
from pbcs_jax.nets import MLP


def problem(seed):
    x, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:300], order[300:]
    return x[train], y[train], x[test], y[test]


def test_error(chosen, x, y, x_test, y_test):
    scale = StandardScaler().fit(x)
    model = Ridge(1.0).fit(scale.transform(x[chosen]), y[chosen])
    return np.mean((model.predict(scale.transform(x_test)) - y_test) ** 2) / np.var(y_test)


test_error.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("objective", ["kernel", "network"])
def test_better_than_random_draws(objective):
    model = MLP(num_classes=1, hidden=(32,))
    for seed in range(2):
        data = problem(seed)
        found = pbcs.select_coreset(
            seed, *data[:2], model, 20, objective=objective, loss_fn="squared_error"
        )
        keys = jax.random.split(jax.random.key(seed), 10)
        draws = [np.asarray(jax.random.choice(k, 300, (20,), replace=False)) for k in keys]
        random = np.mean([test_error(draw, *data) for draw in draws])
        assert test_error(found.indices, *data) < 0.9 * random


def test_targets_come_back_in_their_own_units():
    x, y, _, _ = problem(0)
    y = y.copy()
    y[7] = 5000.0  # a slip of the pen
    found = pbcs.select_coreset(0, x, y, None, 40, objective="kernel", loss_fn="squared_error")
    assert found.suspects.indices[0] == 7 and 0 < found.suspects.labels[0] < 1000
    np.testing.assert_allclose(found.labels, y, rtol=1e-4)


def test_a_loss_of_ones_own_sees_targets_as_they_are():
    seen = []

    def poisson(outputs, targets):
        seen.append(targets.dtype)
        return jax.numpy.exp(outputs[:, 0]) - targets * outputs[:, 0]

    x, y, _, _ = problem(0)
    model = MLP(num_classes=1, hidden=(8,))
    options = {"inner": pbcs.Inner(steps=3, learning_rate=1e-4), "outer_steps": 1, "num_masks": 2}
    options |= {"objective": "network", "loss_fn": poisson}
    found = pbcs.select_coreset(0, x, y / 100, model, 20, **options)
    np.testing.assert_allclose(found.labels, y / 100, rtol=1e-6)
    assert set(seen) == {np.dtype(np.float32)}
