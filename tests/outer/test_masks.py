"""Masks: distribution, log-probability, score and packing."""

import itertools

import chex
import hypothesis.extra.numpy as hnp
import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

import pbcs_jax as pbcs
from pbcs_jax.outer import masks

unit = st.floats(0, 1, width=32)
probability_vectors = hnp.arrays(np.float32, 12, elements=unit)


class MaskVariants(chex.TestCase):
    """The same numbers compiled or not, on one device."""

    @chex.variants(with_jit=True, without_jit=True, with_device=True)
    def test_frequencies_are_the_probabilities(self):
        s = jnp.array([0.0, 0.03, 0.5, 0.9, 1.0])
        sample = self.variant(pbcs.sample_masks, static_argnums=2)
        drawn = np.asarray(sample(jax.random.key(0), s, 20_000))
        assert set(np.unique(drawn)) == {0.0, 1.0} and drawn.dtype == np.float32
        error = 4 * np.sqrt(s * (1 - s) / 20_000)
        assert np.all(np.abs(drawn.mean(0) - s) <= error)

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(3, 8)
    def test_packing_holds_exactly_the_chosen_rows(self, capacity):
        drawn = jnp.array([[1, 0, 1, 0, 0, 1, 0, 0], [0] * 8, [1] * 8], jnp.float32)
        packed = self.variant(masks.pack_masks, static_argnums=1)(drawn, capacity)
        for row in range(3):
            chosen = np.flatnonzero(drawn[row])
            held = np.asarray(packed.indices[row])[np.asarray(packed.weights[row]) > 0]
            np.testing.assert_array_equal(held, chosen[:capacity])
            assert packed.overflow[row] == max(len(chosen) - capacity, 0)
            np.testing.assert_array_equal(np.flatnonzero(packed.masks[row]), held)


@given(probability_vectors, st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=50)
def test_score_is_the_gradient_of_the_log_probability(s, seed):
    s = jnp.asarray(np.clip(s, 0.01, 0.99))
    drawn = pbcs.sample_masks(jax.random.key(seed), s, 3)
    gradient = jax.vmap(jax.grad(lambda s, m: pbcs.mask_log_prob(m[None], s)[0]), (None, 0))
    np.testing.assert_allclose(pbcs.mask_score(drawn, s), gradient(s, drawn), rtol=1e-4)


@given(probability_vectors, st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=100)
def test_score_is_finite_everywhere_and_zero_at_the_ends(s, seed):
    drawn = pbcs.sample_masks(jax.random.key(seed), jnp.full(s.shape, 0.5), 4)
    score = np.asarray(pbcs.mask_score(drawn, jnp.asarray(s)))  # masks that cannot occur, too
    assert np.all(np.isfinite(score))
    assert np.all(score[:, (s == 0) | (s == 1)] == 0)


def test_score_next_to_the_ends_is_finite():
    s = jnp.array([1e-45, 1e-38, 1 - 6e-8], jnp.float32)
    for value in (0.0, 1.0):
        assert np.all(np.isfinite(pbcs.mask_score(jnp.full((1, 3), value), s)))


def test_log_probability_sums_to_one_over_all_masks():
    s = jnp.array([0.2, 0.7, 1.0, 0.0, 0.5])
    every = jnp.array(np.unpackbits(np.arange(32, dtype=np.uint8)[:, None], axis=1)[:, 3:])
    logp = pbcs.mask_log_prob(every.astype(jnp.float32), s)
    assert float(jnp.sum(jnp.exp(logp))) == pytest.approx(1, abs=1e-6)
    assert not np.any(np.isnan(logp)) and np.isneginf(logp).any()


@given(hnp.arrays(np.bool_, (3, 30)), st.sampled_from([1, 7, 30]))
@settings(deadline=None, max_examples=50)
def test_packed_masks_are_what_was_asked_for_less_the_overflow(drawn, capacity):
    packed = masks.pack_masks(jnp.asarray(drawn, jnp.float32), capacity)
    np.testing.assert_array_equal(drawn.sum(1), packed.masks.sum(1) + packed.overflow)
    assert np.all(np.asarray(packed.masks) <= drawn)
    np.testing.assert_array_equal(packed.masks.sum(1), packed.weights.sum(1))


def test_capacity_is_enough_for_nearly_every_mask():
    n, size = 2000, 100
    drawn = pbcs.sample_masks(jax.random.key(0), jnp.full((n,), size / n), 5000)
    too_many = np.mean(drawn.sum(1) > max(masks.capacities(n, size)))
    assert too_many <= 0.001


def test_masks_are_independent_and_as_probable_as_said():
    """All pairs of masks and of candidates, at probabilities from one in a million to nearly 1."""
    s = jnp.array([0.0, 1e-6, 1e-3, 0.25, 0.5, 0.999, 1.0])
    draws = 40_000
    drawn = np.asarray(jax.jit(pbcs.sample_masks, static_argnums=2)(jax.random.key(1), s, draws))
    deviation = np.sqrt(np.asarray(s * (1 - s)) / draws)
    assert np.all(np.abs(drawn.mean(0) - s) <= 5 * deviation + 1e-7)
    middle = drawn[:, 3:5] - drawn[:, 3:5].mean(0)
    assert abs(np.mean(middle[:, 0] * middle[:, 1])) < 5 * 0.25 / np.sqrt(draws)  # candidates
    for lag in (1, draws // 2):  # masks of one pair of words, and of neighbouring pairs
        together = np.mean(middle[lag:, 1] * middle[:-lag, 1])
        assert abs(together) < 5 * 0.25 / np.sqrt(draws - lag)


def test_threefry_is_threefry():
    """The words of jax's own generator, for counters of more than one row."""
    key = jnp.array([3, 4], jnp.uint32)
    counters = jnp.arange(6, dtype=jnp.uint32), jnp.arange(6, dtype=jnp.uint32) * 7
    ours = masks._threefry(key, counters)
    theirs = jax.extend.random.threefry_2x32(key, jnp.concatenate(counters))
    np.testing.assert_array_equal(jnp.concatenate(ours), theirs)


def test_masks_of_one_size_are_as_likely_as_they_should_be():
    s = jnp.array([0.0, 0.3, 0.9, 0.5, 1.0, 0.3])
    found = np.asarray(masks.sample_masks_of_size(jax.random.key(0), s, 40_000))
    every = np.array(list(itertools.product([0.0, 1.0], repeat=6)), np.float32)
    every = every[every.sum(1) == 3]
    shares = np.exp(masks.mask_log_prob(jnp.asarray(every), s))
    shares /= shares.sum()
    seen = (found[:, None] == every).all(2).mean(0)
    assert np.abs(seen - shares).max() < 4 * 0.5 / np.sqrt(len(found)) and seen.sum() == 1


def test_masks_of_one_size_are_of_that_size_among_many():
    s = jnp.full(1000, 0.1).at[:50].set(1.0).at[50:500].set(0.0)
    found = masks.sample_masks_of_size(jax.random.key(1), s, 3)
    assert found.sum(1).tolist() == [100.0] * 3
    assert found[:, :50].all() and not found[:, 50:500].any()
