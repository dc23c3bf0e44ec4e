"""The projection onto C against an independent quadratic-programming answer, and its derivative."""

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pbcs_jax as pbcs

project = jax.jit(pbcs.project)


def quadratic_program(z, size):
    """min |s - z|^2 over C, by its optimality conditions in float64: all breakpoints, sorted."""
    clipped = np.clip(z, 0, 1)
    if clipped.sum() <= size:
        return clipped
    breaks = np.unique(np.concatenate([z, z - 1, [0.0]]))
    totals = np.array([np.clip(z - v, 0, 1).sum() for v in breaks])
    right = np.searchsorted(-totals, -size)  # totals fall; the root lies before `right`
    low, high = breaks[right - 1], breaks[right]
    v = low + (totals[right - 1] - size) / (totals[right - 1] - totals[right]) * (high - low)
    return np.clip(z - v, 0, 1)


def test_the_reference_itself_agrees_with_a_solver():
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    for _ in range(5):
        z, size = rng.normal(0.3, 1, 8), rng.uniform(0.5, 4)
        solved = minimize(
            lambda s, z=z: 0.5 * np.sum((s - z) ** 2),
            np.full(8, size / 8),
            jac=lambda s, z=z: s - z,
            bounds=[(0, 1)] * 8,
            constraints={"type": "ineq", "fun": lambda s, size=size: size - s.sum()},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(quadratic_program(z, size), solved.x, atol=1e-6)


def case(rng, number):
    """One of 1,000 random problems: K integer or not, ties, all negative, already feasible."""
    n = (1, 2, 7, 40, 333, 2000)[number % 6]
    kind = number % 5
    z = rng.normal(rng.uniform(-1, 1), rng.choice([0.01, 1, 30]), n)
    size = rng.integers(1, n + 1) if number % 2 else rng.uniform(0, n)
    if kind == 1:
        z = np.round(z, 1) if number % 3 else np.full(n, z[0])
    elif kind == 2:
        z = -np.abs(z)
    elif kind == 3:
        z = rng.uniform(0, 1, n) * min(1, size / n)
    return z.astype(np.float32), float(size)


def test_a_thousand_random_cases():
    rng = np.random.default_rng(1)
    worst = 0.0
    for number in range(1000):
        z, size = case(rng, number)
        answer = np.asarray(project(z, size), np.float64)
        worst = max(worst, np.abs(answer - quadratic_program(z.astype(np.float64), size)).max())
        assert answer.min() >= 0 and answer.max() <= 1
    assert worst < 1e-5


@given(
    hnp.arrays(np.float32, st.sampled_from([1, 12, 60]), elements=st.floats(-1e3, 1e3, width=32)),
    st.floats(0, 60),
)
@settings(deadline=None, max_examples=100)
def test_it_lands_in_the_set_and_stays_there(z, size):
    once = project(jnp.asarray(z), size)
    assert once.min() >= 0 and once.max() <= 1
    assert float(once.sum()) <= size + 1e-4 * max(1, size)
    np.testing.assert_allclose(project(once, size), once, atol=1e-5)
    assert np.all(np.diff(np.asarray(once)[np.argsort(z)]) >= -1e-6)  # the order is kept


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_any_float_dtype(dtype):
    z = jnp.linspace(-1, 2, 5000).astype(dtype)
    answer = pbcs.project(z, 100)
    assert answer.dtype == dtype
    exact = quadratic_program(np.asarray(z, np.float64), 100)
    np.testing.assert_allclose(np.asarray(answer, np.float64), exact, atol=1e-2)


@pytest.mark.parametrize("size", [1.5, 3.0, 50.0])  # 50: the constraint is slack
def test_derivative_against_finite_differences(size):
    rng = np.random.default_rng(2)
    z, direction, weights = rng.normal(0.4, 0.5, (3, 9)).astype(np.float32)
    value = lambda z: jnp.vdot(weights, pbcs.project(z, size))  # noqa: E731
    slope = jnp.vdot(jax.grad(value)(jnp.asarray(z)), direction)
    h = 1e-4
    exact = [
        quadratic_program(z.astype(np.float64) + sign * h * direction, size) for sign in (1, -1)
    ]
    assert float(slope) == pytest.approx(weights @ (exact[0] - exact[1]) / (2 * h), abs=1e-3)


def test_derivative_with_respect_to_the_size():
    z = jnp.array([0.9, 0.8, 0.7, -3.0])
    slope = jax.jacobian(pbcs.project, argnums=1)(z, 1.0)
    np.testing.assert_allclose(slope, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-6)


def test_it_maps_over_batches():
    z = jnp.asarray(np.random.default_rng(3).normal(size=(5, 30)).astype(np.float32))
    together = jax.vmap(pbcs.project, (0, None))(z, 4.0)
    apart = jnp.stack([pbcs.project(row, 4.0) for row in z])
    np.testing.assert_allclose(together, apart, atol=1e-6)


@pytest.mark.parametrize("kind", ["normal", "sparse", "sorted"])
def test_many_entries_meet_the_optimality_conditions(kind):
    """Beyond a quarter of a million the search starts from a sample, which may mislead it."""
    rng = np.random.default_rng(4)
    n, size = 300_001, 3_000.5
    z = rng.normal(0.1, 0.1, n)
    if kind == "sparse":
        z = np.where(rng.random(n) < 0.99, 0, z + rng.random(n))
        z += 0.02
    elif kind == "sorted":
        z = np.sort(z)
    z = z.astype(np.float32)
    s = np.asarray(project(z, size), np.float64)
    assert s.sum() == pytest.approx(size, rel=1e-5)
    free = (s > 0) & (s < 1)
    shift = np.median(z[free] - s[free])
    assert shift > 0
    np.testing.assert_allclose(z[free] - s[free], shift, atol=1e-6)
    assert np.all(z[s == 0] <= shift + 1e-6) and np.all(z[s == 1] >= 1 + shift - 1e-6)
