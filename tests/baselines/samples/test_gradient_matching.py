"""Gradient matching against least squares written out."""

import doctest
import importlib

import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.baselines.samples.gradient_matching import pursue


@pytest.mark.parametrize("reg", [0.01, 0.5])
def test_each_choice_fits_best_what_is_left_over(reg):
    vectors = np.random.default_rng(0).normal(size=(12, 5)) + 1
    order = pursue(jnp.asarray(vectors @ vectors.T, jnp.float32), 4, reg)
    ridge, target = reg * np.mean(np.sum(vectors**2, axis=1)), vectors.mean(axis=0)
    chosen: list[int] = []
    for found in np.asarray(order):
        own = vectors[chosen]
        weights = np.linalg.solve(own @ own.T + ridge * np.eye(len(own)), own @ target)
        fit = vectors @ (target - np.maximum(weights, 0) @ own)
        fit[chosen] = -np.inf
        assert found == fit.argmax()
        chosen.append(int(found))


def test_its_examples_are_right():
    module = importlib.import_module("pbcs_jax.baselines.samples.gradient_matching")
    assert doctest.testmod(module).failed == 0
