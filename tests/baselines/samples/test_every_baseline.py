"""What all methods promise, whatever they are given."""

import dataclasses
import doctest
import importlib
import pkgutil

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pbcs_jax.baselines
from pbcs_jax import nets
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.errors import UserError

MODEL = nets.MLP(num_classes=4, hidden=(8,))
# Few shapes: every one is compiled.
SIZES = {11: (1, 11), 16: (4, 15)}


@st.composite
def problems(draw):
    """Candidates of some of four classes, some or all of them copies, and a size."""
    n = draw(st.sampled_from(list(SIZES)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    distinct = draw(st.sampled_from([1, 5, n]))
    x = rng.standard_normal((distinct, 8, 8, 1)).astype(np.float32)[np.arange(n) % distinct]
    classes = draw(st.lists(st.integers(0, 3), min_size=1, unique=True))
    data = Candidates(x, rng.choice(classes, n), 4, MODEL)
    if draw(st.booleans()):
        data = dataclasses.replace(data, validation=(x[:6], rng.integers(0, 4, 6)))
    return data, draw(st.sampled_from(SIZES[n]))


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(problem=problems())
def test_it_gives_sorted_distinct_indices_and_the_same_for_the_same_key(name, problem):
    data, size = problem
    first, second = (BASELINES[name](jax.random.key(3), data, size) for _ in range(2))
    assert isinstance(first, np.ndarray) and np.issubdtype(first.dtype, np.integer)
    assert first.shape == (len(data.y) if name == "whole" else size,)
    assert np.all(np.diff(first) > 0) and first[0] >= 0 and first[-1] < len(data.y)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("size", [0, -1, 4, 1.5])
@pytest.mark.parametrize("name", BASELINES)
def test_a_bad_size_is_refused(name, size):
    data = Candidates(np.zeros((3, 2), np.float32), np.zeros(3, int), 2, MODEL)
    with pytest.raises(
        UserError, match=f"size is {size}: use a whole number of at least 1 and of at most 3"
    ):
        BASELINES[name](jax.random.key(0), data, size)


@pytest.mark.parametrize(
    "name", [m.name for m in pkgutil.iter_modules(pbcs_jax.baselines.__path__)]
)
def test_its_examples_are_right(name):
    module = importlib.import_module(f"pbcs_jax.baselines.{name}")
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
