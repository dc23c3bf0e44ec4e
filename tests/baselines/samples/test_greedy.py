"""Greedy bilevel selection: its inner problem, its implicit gradient and its choice.

The slow version works in features, with all matrices written out; the fast one in a kernel.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax import nets
from pbcs_jax.baselines import Candidates
from pbcs_jax.baselines.samples import greedy, newton, uniform

lib = importlib.import_module("pbcs_jax.baselines.samples.greedy")  # samples.greedy is the function
REG, CLASSES = 1e-2, 3


@pytest.fixture
def exact(monkeypatch):
    """float64, and solvers that go on to the end."""
    monkeypatch.setattr(lib, "GRADIENT_TOLERANCE", 1e-12)
    monkeypatch.setattr(lib, "GRADIENT_ITERATIONS", 500)
    monkeypatch.setattr(newton, "TOLERANCE", 1e-9)
    monkeypatch.setattr(newton, "ITERATIONS", 200)
    monkeypatch.setattr(lib, "FIRST_STEPS", 20)
    with jax.enable_x64(True):
        yield
    jax.clear_caches()  # what was compiled has these constants in it


def make(n=14, d=4, m=9, seed=0):
    """Random features, labels that follow from them but for some, and clean outer data."""
    rng = np.random.default_rng(seed)
    features, outer = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    rule = rng.standard_normal((d, CLASSES))
    y = np.argmax(features @ rule, axis=1)
    y[: n // 3] = rng.integers(0, CLASSES, n // 3)
    return features, y, outer, np.argmax(outer @ rule, axis=1)


def as_data(features, y, outer, outer_y):
    return lib.Data(*(jnp.asarray(a) for a in (features, y, outer, outer_y)))


def softmax(outputs):
    e = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def slow_inner(features, y, weights, count):
    """theta `[d, C]` by Newton's method, and the Hessian `[d C, d C]` there."""
    d = features.shape[1]
    theta = np.zeros((d, CLASSES))
    for _ in range(100):
        p = softmax(features @ theta)
        gradient, hessian = 2 * REG * theta.ravel(), 2 * REG * np.eye(d * CLASSES)
        for row, label, w, q in zip(features, y, weights / count, p, strict=True):
            gradient = gradient + w * np.kron(row, q - np.eye(CLASSES)[label])
            hessian += w * np.kron(np.outer(row, row), np.diag(q) - np.outer(q, q))
        theta = theta - 0.5 * np.linalg.solve(hessian, gradient).reshape(d, CLASSES)
    assert np.abs(gradient).max() < 1e-12
    return theta, hessian


def slow_gradients(features, y, outer, outer_y, chosen):
    """dL/dw of all candidates, those of `chosen` having the weight 1 and the others 0."""
    theta, hessian = slow_inner(features[chosen], y[chosen], np.ones(len(chosen)), len(chosen))
    slope = np.zeros(theta.size)
    for row, label, q in zip(outer, outer_y, softmax(outer @ theta), strict=True):
        slope += np.kron(row, q - np.eye(CLASSES)[label]) / len(outer)
    adjoint = np.linalg.solve(hessian, slope)
    found = []
    for row, label, q in zip(features, y, softmax(features @ theta), strict=True):
        found.append(-np.kron(row, q - np.eye(CLASSES)[label]) @ adjoint / len(chosen))
    return np.array(found)


def outer_loss(data, state):
    outputs = state.outer_kernel @ state.solution.alpha
    return float(-jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(outputs)), data.outer_y]))


@pytest.mark.usefixtures("exact")
def test_the_inner_problem_is_solved():
    features, y, outer, outer_y = make()
    data = as_data(features, y, outer, outer_y)
    chosen, weights = np.array([2, 5, 7, 11, 0]), np.array([1.0, 0.3, 2.0, 0.7, 0.0])
    state = lib.grow(lib.start(data, jnp.asarray(chosen), CLASSES), 8, 14)  # 3 rows are empty
    state = lib.solve(data, state, jnp.pad(jnp.asarray(weights), (0, 3)), REG, 30)
    theta, _ = slow_inner(features[chosen], y[chosen], weights, 5)
    np.testing.assert_allclose(features[chosen].T @ state.solution.alpha[:5], theta, atol=1e-7)


@pytest.mark.usefixtures("exact")
def test_the_implicit_gradient_is_that_of_the_bilevel_problem():
    """Against finite differences: a weight is moved, and the inner problem solved again."""
    data = as_data(*make())
    chosen = jnp.array([1, 4, 8, 9, 12])
    weights = jnp.array([1.0, 0.6, 1.3, 0.9, 1.1])
    state = lib.solve(data, lib.start(data, chosen, CLASSES), weights, REG, 30)
    inside = lib.inside_gradients(data, state, weights)
    step = 1e-4
    for i in range(5):
        ends = [lib.solve(data, state, weights.at[i].add(s), REG, 20) for s in (-step, step)]
        slope = (outer_loss(data, ends[1]) - outer_loss(data, ends[0])) / (2 * step)
        assert float(inside[i]) == pytest.approx(slope, rel=1e-4, abs=1e-8)
    rows = jnp.array([0, 3, 13], jnp.int32)
    outside = lib.outside_gradients(data, state, weights, rows, REG)
    for row, found in zip(rows, outside, strict=True):
        # Added, but with the number of samples, by which the loss is divided, as it was.
        more = lib.add(data, lib.grow(state, 6, 14), row)._replace(count=state.count)
        more = lib.solve(data, more, jnp.append(weights, 1e-6), REG, 20)
        slope = (outer_loss(data, more) - outer_loss(data, state)) / 1e-6
        assert float(found) == pytest.approx(slope, rel=1e-3, abs=1e-8)


@pytest.mark.usefixtures("exact")
def test_it_chooses_what_brute_force_chooses():
    features, y, outer, outer_y = make()
    data = as_data(features, y, outer, outer_y)
    expected = [3, 10]
    for _ in range(5):
        gradients = slow_gradients(features, y, outer, outer_y, np.array(expected))
        gradients[expected] = np.inf
        expected.append(int(np.argmin(gradients)))
    state = lib.grow(lib.start(data, jnp.array([3, 10]), CLASSES), 9, 14)
    settings = lib.Settings(inner_reg=REG, weight_steps=0, num_candidates=14)
    found = lib.extend(jax.random.key(0), data, state, 7, settings)
    assert found.chosen.tolist() == [*expected, 14, 14]


@pytest.mark.usefixtures("exact")
def test_learned_weights_lower_the_outer_loss():
    data = as_data(*make(n=20, m=30, seed=1))
    settings = lib.Settings(inner_reg=REG, weight_steps=10, num_candidates=14)
    state = lib.start(data, jnp.arange(12), CLASSES)
    before = lib.solve(data, state, jnp.ones(12), REG, 20)
    after, weights = lib.learn_weights(data, state, settings)
    assert float(jnp.abs(weights - 1).max()) > 0.2
    assert outer_loss(data, after) < outer_loss(data, before) - 1e-3


def test_with_clean_validation_it_chooses_cleaner_labels_than_chance():
    rng = np.random.default_rng(0)
    centres = 3 * np.eye(CLASSES, 30)
    truth, clean = rng.integers(0, CLASSES, 150), rng.integers(0, CLASSES, 60)
    x, outer = (
        (centres[c] + rng.standard_normal((len(c), 30))).astype(np.float32) for c in (truth, clean)
    )
    y = np.where(rng.random(150) < 0.5, (truth + rng.integers(1, 3, 150)) % 3, truth)
    data = Candidates(x, y, CLASSES, nets.MLP(num_classes=CLASSES, hidden=(32,)), (outer, clean))
    key = jax.random.key(0)
    # Of all 40, the first 5 are drawn at random.
    chosen = greedy(key, data, 40, start_size=5, inner_reg=1e-3, weight_steps=1)
    wrong = y != truth
    assert wrong[chosen].mean() < 0.6 * min(wrong.mean(), wrong[uniform(key, data, 40)].mean())
