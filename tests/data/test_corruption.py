"""Label noise and class imbalance: the invariants that the experiments lean on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbcs_jax.data import imbalance, label_noise
from pbcs_jax.errors import UserError

NUM_SAMPLES = 4000
SEEDS = st.integers(0, 2**32 - 1)
CLASSES = st.integers(2, 20)
RATES = st.floats(0, 1)


def some_labels(seed: int, num_classes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, num_classes, NUM_SAMPLES).astype(np.int32)


@given(SEEDS, CLASSES, RATES, st.sampled_from(["symmetric", "pairwise"]))
def test_share_of_flipped_labels_is_the_rate(seed, num_classes, rate, kind):
    labels = some_labels(seed, num_classes)
    before = labels.copy()
    noisy = label_noise(np.random.default_rng([seed, 1]), labels, kind, rate, num_classes)
    six_sigma = 6 * np.sqrt(rate * (1 - rate) / NUM_SAMPLES) + 1e-12
    assert abs(np.mean(noisy != labels) - rate) <= six_sigma
    assert noisy.dtype == np.int32 and noisy.min() >= 0 and noisy.max() < num_classes
    np.testing.assert_array_equal(labels, before)  # the input is left alone


@given(SEEDS, CLASSES, RATES)
def test_pairwise_moves_by_one_class(seed, num_classes, rate):
    labels = some_labels(seed, num_classes)
    noisy = label_noise(np.random.default_rng(seed), labels, "pairwise", rate, num_classes)
    assert set((noisy - labels) % num_classes) <= {0, 1}


@given(SEEDS, CLASSES)
def test_symmetric_at_rate_one_never_keeps_and_is_uniform_over_the_others(seed, num_classes):
    labels = some_labels(seed, num_classes)
    noisy = label_noise(np.random.default_rng([seed, 1]), labels, "symmetric", 1.0, num_classes)
    shares = np.bincount((noisy - labels) % num_classes, minlength=num_classes) / NUM_SAMPLES
    expected = 1 / (num_classes - 1)
    assert shares[0] == 0
    np.testing.assert_allclose(shares[1:], expected, atol=6 * np.sqrt(expected / NUM_SAMPLES))


@given(SEEDS, RATES, RATES, st.sampled_from(["symmetric", "pairwise"]))
def test_flips_at_a_low_rate_stay_at_a_higher_one(seed, a, b, kind):
    labels = some_labels(seed, 10)
    low, high = (
        label_noise(np.random.default_rng(seed), labels, kind, rate, 10) for rate in sorted((a, b))
    )
    flipped = low != labels
    np.testing.assert_array_equal(low[flipped], high[flipped])


@pytest.mark.parametrize(("kind", "rate"), [("none", 0.7), ("symmetric", 0.0), ("pairwise", 0.0)])
def test_no_noise_changes_nothing(kind, rate):
    labels = some_labels(0, 10)
    noisy = label_noise(np.random.default_rng(0), labels, kind, rate, 10)
    np.testing.assert_array_equal(noisy, labels)


@pytest.mark.parametrize(
    ("kind", "rate", "num_classes", "said"),
    [
        ("assymetric", 0.1, 10, "none, symmetric, pairwise"),
        ("pairwise", 1.5, 10, "of at least 0 and of at most 1"),
        ("pairwise", -0.1, 10, "of at least 0 and of at most 1"),
        ("symmetric", float("nan"), 10, "of at least 0 and of at most 1"),
        ("symmetric", 0.1, 1, "num_classes is 1: use a number of at least 2"),
        ("symmetric", 0.1, 9, "0..8"),
    ],
)
def test_bad_noise_is_a_user_error(kind, rate, num_classes, said):
    labels = np.arange(100) % 10
    with pytest.raises(UserError, match=said):
        label_noise(np.random.default_rng(0), labels, kind, rate, num_classes)


@given(SEEDS, st.integers(2, 12), st.floats(1, 200))
def test_imbalance_is_a_geometric_tail_with_the_factor(seed, num_classes, factor):
    size = 500
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(num_classes), size))
    kept = imbalance(np.random.default_rng(seed), labels, factor, num_classes)
    counts = np.bincount(labels[kept], minlength=num_classes)
    sigma = factor ** (-1 / (num_classes - 1))
    np.testing.assert_allclose(counts, size * sigma ** np.arange(num_classes), atol=0.5 + 1e-6)
    assert counts[0] == size and counts[-1] >= 1
    assert np.all(np.diff(kept) > 0)


@given(SEEDS, st.floats(1, 300), st.floats(1, 300))
def test_a_higher_factor_keeps_a_subset(seed, a, b):
    labels = some_labels(seed, 10)
    low, high = (imbalance(np.random.default_rng(seed), labels, f, 10) for f in sorted((a, b)))
    assert set(high) <= set(low)


def test_factor_one_keeps_all_and_an_absent_class_stays_absent():
    labels = np.array([0, 0, 2, 2, 2])
    kept = imbalance(np.random.default_rng(0), labels, 1.0, 3)
    np.testing.assert_array_equal(kept, np.arange(5))
    kept = imbalance(np.random.default_rng(0), labels, 1e9, 3)
    np.testing.assert_array_equal(np.bincount(labels[kept]), [2, 0, 1])


@pytest.mark.parametrize("factor", [0.5, 0.0, -3.0, float("nan"), float("inf")])
def test_bad_factor_is_a_user_error(factor):
    with pytest.raises(UserError, match="at least 1"):
        imbalance(np.random.default_rng(0), np.arange(10), factor, 10)
