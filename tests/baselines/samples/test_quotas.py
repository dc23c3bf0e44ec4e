"""How many each class gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbcs_jax.baselines.samples import quotas

counts_and_size = (
    st.lists(st.integers(0, 9), min_size=1, max_size=6)
    .filter(sum)
    .flatmap(lambda counts: st.tuples(st.just(np.array(counts)), st.integers(1, sum(counts))))
)


@given(counts_and_size)
def test_even_quotas_are_as_near_to_each_other_as_the_classes_allow(given):
    counts, size = given
    found = quotas.even(counts, size)
    assert found.sum() == size and np.all(found <= counts) and np.all(found >= 0)
    for short in np.flatnonzero(found < counts):  # it could give more, so nobody gives much more
        assert found.max() <= found[short] + 1


@given(counts_and_size)
def test_proportional_quotas_are_the_shares_rounded(given):
    counts, size = given
    found = quotas.proportional(counts, size)
    assert found.sum() == size and np.all(found <= counts)
    assert np.all(np.abs(found - size * counts / counts.sum()) < 1)


@pytest.mark.parametrize("rule", [quotas.even, quotas.proportional])
def test_everything_is_everything(rule):
    np.testing.assert_array_equal(rule(np.array([3, 0, 7]), 10), [3, 0, 7])
