"""Training in spans against training at once: the same bits, wherever the spans end."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax import nets
from pbcs_jax.inner import losses
from pbcs_jax.inner.resume import blank, train_until
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import as_model

X = jax.random.normal(jax.random.key(0), (7, 5, 5, 1))
CORESET = Coreset(X, jnp.arange(7) % 3, jnp.ones(7))
MODEL = as_model(nets.MLP(num_classes=3, hidden=(8,), dropout=0.2))
KEY = jax.random.key(2)


def trained_in_spans(settings, ends):
    variables = MODEL.init(jax.random.key(1), X[:1])
    given = (MODEL, losses.cross_entropy, settings)
    span = jax.jit(partial(train_until, *given))
    progress, reports = blank(*given, variables, CORESET), []
    for end in ends:
        progress = jax.tree.map(np.asarray, progress)  # as it is on a disk
        progress, trained, ended = span(KEY, variables, CORESET, progress, end)
        reports.append(bool(ended))
    return trained, reports


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(
    "settings",
    [
        Inner(steps=12),  # in the span of the coreset
        Inner(steps=12, optimizer="adam", batch_size=3),
        Inner(steps=12, weight_decay=0.1),
    ],
)
def test_the_same_bits_wherever_it_stops(settings):
    whole, reports = trained_in_spans(settings, [12])
    assert reports == [True]
    parts, reports = trained_in_spans(settings, [1, 2, 7, 40])
    assert reports == [False, False, False, True]
    assert_same_bits(whole, parts)
    variables = MODEL.init(jax.random.key(1), X[:1])
    at_once = train(MODEL, losses.cross_entropy, settings, KEY, variables, CORESET)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, at_once.variables, whole.variables)
    assert int(whole.steps) == 12


def test_it_ends_early_where_the_gradient_is_small():
    settings = Inner(steps=500, tolerance=0.5, schedule="constant")
    whole, _ = trained_in_spans(settings, [500])
    steps = int(whole.steps)
    assert 2 < steps < 500
    parts, reports = trained_in_spans(settings, [1, steps - 1, steps, steps + 1])
    assert reports == [False, False, True, True]
    assert_same_bits(whole, parts)


def test_no_steps_leave_the_initialisation():
    trained, reports = trained_in_spans(Inner(steps=0), [1])
    assert reports == [True] and bool(trained.ok)
    assert_same_bits(trained.variables, MODEL.init(jax.random.key(1), X[:1]))
