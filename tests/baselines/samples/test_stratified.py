"""A stratified draw is even over the classes, and uniform within them."""

import jax
import numpy as np
import pytest

from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.baselines.samples import stratified


@pytest.mark.parametrize(
    "counts, size, expected",
    [
        ([5, 5, 5], 6, [2, 2, 2]),
        ([5, 5, 5], 7, [3, 2, 2]),  # the first class gets the odd one
        ([9, 1, 4], 8, [4, 1, 3]),  # what a small class cannot give, the others give
        ([3, 0, 2], 5, [3, 0, 2]),
    ],
)
def test_every_class_gives_as_many_as_it_can(counts, size, expected):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(3), counts))
    data = Candidates(np.zeros((len(y), 2), np.float32), y, 3, None)
    chosen = stratified(jax.random.key(0), data, size)
    assert np.bincount(y[chosen], minlength=3).tolist() == expected


def test_every_candidate_of_a_class_is_drawn_equally_often():
    y = np.array([0, 1, 0, 0, 1, 0])
    data = Candidates(np.zeros((6, 2), np.float32), y, 2, None)
    drawn = [stratified(key, data, 2) for key in jax.random.split(jax.random.key(0), 600)]
    shares = np.bincount(np.concatenate(drawn), minlength=6) / 600
    np.testing.assert_allclose(shares, np.where(y == 0, 1 / 4, 1 / 2), atol=0.08)


def test_the_older_methods_keep_their_places():
    """Experiments fold their keys by the place of a method."""
    assert list(BASELINES)[:11] == [
        "uniform",
        "whole",
        "kcenter",
        "herding",
        "hardest",
        "greedy",
        "el2n",
        "forgetting",
        "craig",
        "moderate",
        "stratified",
    ]
