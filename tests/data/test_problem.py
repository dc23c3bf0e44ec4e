"""Candidates, validation and test set: who goes where, what is corrupted, how it is scaled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbcs_jax.data import Dataset, load, make_problem
from pbcs_jax.errors import UserError

C = 5


def toy(n: int = 200, shape=(3, 3, 2), dtype=np.uint8, name: str = "toy") -> Dataset:
    """Every training sample differs from every other: its first pixels spell its row."""
    rng = np.random.default_rng(n)
    x = rng.integers(0, 256, (n + 50, *shape)).astype(dtype)
    flat = x.reshape(n + 50, -1)
    flat[:, 0], flat[:, 1] = np.divmod(np.arange(n + 50), 256)
    y = (rng.permutation(n + 50) % C).astype(np.int32)
    y[:n] = rng.permutation(n) % C
    return Dataset(x[:n], y[:n], x[n:], y[n:], np.arange(C), name, "npz")


def same(a, b) -> bool:
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@given(
    seed=st.integers(0, 10**6),
    num_candidates=st.integers(0, 120),
    num_validation=st.integers(0, 60),
    kind=st.sampled_from(["none", "symmetric", "pairwise"]),
    rate=st.floats(0, 1),
    factor=st.floats(1, 50),
)
def test_invariants(seed, num_candidates, num_validation, kind, rate, factor):
    data = toy()
    options = {
        "seed": seed,
        "num_candidates": num_candidates,
        "num_validation": num_validation,
        "noise_kind": kind,
        "noise_rate": rate,
        "imbalance_factor": factor,
    }
    problem = make_problem(data, **options)
    n = len(problem.y)
    assert problem.x.shape == (n, 3, 3, 2) and problem.x.dtype == np.float32
    assert problem.y.dtype == problem.y_true.dtype == np.int32
    assert len(set(problem.indices)) == n <= (num_candidates or 200 - num_validation)
    np.testing.assert_array_equal(problem.images, data.x_train[problem.indices])
    np.testing.assert_array_equal(problem.y_true, data.y_train[problem.indices])
    assert len(problem.x_test) == 50 and np.array_equal(problem.y_test, data.y_test)
    if num_validation:
        counts = np.bincount(problem.y_val, minlength=C)
        assert counts.sum() == num_validation and np.ptp(counts) <= 1
        # The samples are all different, so equal rows would be the same sample.
        rows = {row.tobytes() for row in problem.x}
        assert rows.isdisjoint({row.tobytes() for row in problem.x_val})
    else:
        assert problem.x_val is None and problem.y_val is None
    assert same(problem, make_problem(data, **options))


def test_validation_labels_are_clean():
    data = toy()
    problem = make_problem(data, seed=3, num_validation=50, noise_kind="symmetric", noise_rate=1.0)
    assert np.all(problem.y != problem.y_true)
    outside = np.setdiff1d(np.arange(200), problem.indices)
    clean = make_problem(data, seed=3, num_validation=50)
    np.testing.assert_array_equal(problem.y_val, clean.y_val)
    np.testing.assert_array_equal(np.bincount(problem.y_val), np.bincount(data.y_train[outside]))


def test_each_choice_has_its_own_random_stream():
    data = toy()
    base = {"seed": 7, "num_candidates": 100, "num_validation": 20}
    plain = make_problem(data, **base)
    noisy = make_problem(data, **base, noise_kind="symmetric", noise_rate=0.4)
    tailed = make_problem(data, **base, imbalance_factor=10.0)
    np.testing.assert_array_equal(plain.indices, noisy.indices)
    np.testing.assert_array_equal(plain.x_val, noisy.x_val)
    assert set(tailed.indices) < set(plain.indices)
    assert not np.array_equal(plain.indices, make_problem(data, **base | {"seed": 8}).indices)


def test_known_statistics_of_mnist():
    data = toy(shape=(28, 28, 1), name="mnist")
    problem = make_problem(data, seed=0, num_validation=10)
    expected = (data.x_test / 255 - 0.1307) / 0.3081
    np.testing.assert_allclose(problem.x_test, expected, atol=1e-5)


def test_known_statistics_of_cifar10():
    data = toy(shape=(32, 32, 3), name="cifar10")
    expected = (data.x_test / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(make_problem(data, seed=0).x_test, expected, atol=1e-5)


def test_another_shape_under_a_known_name_has_its_own_statistics():
    assert abs(make_problem(toy(name="mnist"), seed=0).x.mean()) < 1e-5


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(3, 3, 2), (6,)])
def test_statistics_of_the_candidates_serve_everywhere(dtype, shape):
    data = toy(shape=shape, dtype=dtype)
    problem = make_problem(data, seed=1, num_candidates=100, num_validation=50)
    raw = data.x_train[problem.indices].astype(np.float64)
    axes = tuple(range(raw.ndim - 1))
    mean, std = raw.mean(axes), raw.std(axes)
    std[std == 0] = 1  # the first column of a table is constant here
    np.testing.assert_allclose(problem.x, (raw - mean) / std, atol=1e-4)
    np.testing.assert_allclose(problem.x_test, (data.x_test - mean) / std, atol=1e-4)
    assert (problem.images is None) == (len(shape) == 1)


def test_constant_columns_become_zero():
    data = toy(shape=(4,), dtype=np.float32)
    data.x_train[:, 2] = data.x_test[:, 2] = 0.1
    problem = make_problem(data, seed=0)
    np.testing.assert_allclose(problem.x[:, 2], 0, atol=1e-6)
    assert np.isfinite(problem.x).all() and np.isfinite(problem.x_test).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_candidates": 201}, "200 training samples"),
        ({"num_candidates": 151, "num_validation": 50}, "150 training samples"),
        ({"num_candidates": -1}, "at least 1"),
        ({"num_validation": 200}, "0 training samples"),
        ({"num_validation": 205}, "lower num_validation to 200"),
        ({"num_validation": -5}, "num_validation is -5"),
        ({"seed": -1}, "seed is -1"),
        ({"noise_kind": "salt"}, "salt"),
        ({"noise_kind": "pairwise", "noise_rate": 2.0}, "of at least 0 and of at most 1"),
        ({"imbalance_factor": 0.1}, "at least 1"),
    ],
)
def test_bad_options_are_user_errors(options, said):
    with pytest.raises(UserError, match=said) as error:
        make_problem(toy(), **{"seed": 0} | options)
    assert "\n" not in str(error.value)


def test_noise_on_the_inputs_changes_all_of_them_and_nothing_else():
    dataset = load("bundled")
    options = {"seed": 3, "num_candidates": 200, "num_validation": 50}
    clean, noisy = (make_problem(dataset, **options, input_noise=std) for std in (0.0, 2.5))
    for name in ("x", "x_val", "x_test"):
        difference = getattr(noisy, name) - getattr(clean, name)
        assert difference.std() == pytest.approx(2.5, rel=0.02)
        assert abs(difference.mean()) < 0.05
    for name in ("y", "y_val", "y_test", "indices", "images"):
        np.testing.assert_array_equal(getattr(noisy, name), getattr(clean, name))
    again = make_problem(dataset, **options, input_noise=2.5)
    np.testing.assert_array_equal(again.x, noisy.x)
