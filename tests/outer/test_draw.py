"""The coreset that is drawn at the end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import pbcs_jax as pbcs
from pbcs_jax.outer.draw import balanced_size


def test_drawing():
    s = jnp.array([1.0, 0.0, 0.6, 0.4, 0.0])
    assert pbcs.draw_coreset(jax.random.key(0), s, 2).tolist() == [0, 2]
    draws = [pbcs.draw_coreset(jax.random.key(i), s, 2, "sample") for i in range(300)]
    counts = np.bincount(np.concatenate(draws), minlength=5) / 300
    np.testing.assert_allclose(counts, s, atol=4 * np.sqrt(0.24 / 300))


@given(st.integers(0, 2**31), st.integers(1, 60), st.sampled_from([1.0, 2.0, 3.5]))
@hypothesis_settings(deadline=None, max_examples=50)
def test_no_class_has_more_than_its_share(seed, size, ratio):
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, 60, p=[0.7, 0.2, 0.07, 0.03])
    s = rng.random(60).astype(np.float32)
    chosen = pbcs.draw_coreset(jax.random.key(0), s, size, labels=labels, max_ratio=ratio)
    assert len(set(chosen)) == min(size, balanced_size(labels, ratio))
    for c in np.unique(labels):
        # The best of each class, and none left behind by more than a sample or the ratio.
        count = np.sum(labels[chosen] == c)
        best = np.sort(s[labels == c])[::-1][:count].sum()
        assert s[chosen][labels[chosen] == c].sum() == pytest.approx(best, abs=1e-5)
        assert np.bincount(labels[chosen]).max() <= max(ratio * count, count + 1)
