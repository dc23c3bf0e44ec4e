"""What the losses promise beyond their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**16), classes=st.integers(2, 20), scale=st.floats(0.1, 30))
def test_absolute_error_is_the_same_summed_over_all_targets(seed, classes, scale):
    """Symmetric: what makes it robust against wrong labels. The Brier score is not."""
    outputs = scale * jax.random.normal(jax.random.key(seed), (3, classes))

    def total(loss):
        each = [loss(outputs, jnp.full(3, c)) for c in range(classes)]
        return np.sum(each, axis=0)

    np.testing.assert_allclose(total(losses.absolute_error), 2 * (classes - 1), rtol=1e-4)


@pytest.mark.parametrize("noise", [0.2, 0.45])
def test_wrong_labels_move_the_minimum_of_brier_but_not_of_absolute_error(noise):
    """Of all outputs p for samples whose labels are wrong at this rate, which is best?"""
    p = jnp.linspace(0.01, 0.99, 99)
    outputs = jnp.stack([jnp.log(p), jnp.log(1 - p)], axis=1)  # softmax: p for class 0, the right

    def best(loss):
        right, wrong = (loss(outputs, jnp.full(99, c)) for c in (0, 1))
        return float(p[jnp.argmin((1 - noise) * right + noise * wrong)])

    assert best(losses.absolute_error) == pytest.approx(0.99)
    assert best(losses.brier) == pytest.approx(1 - noise, abs=0.011)


def test_absolute_error_is_the_distance_from_the_target():
    outputs = jnp.array([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]])
    targets = jnp.array([1, 2])
    slow = np.abs(np.asarray(jax.nn.softmax(outputs)) - np.eye(3)[np.asarray(targets)]).sum(1)
    np.testing.assert_allclose(losses.absolute_error(outputs, targets), slow, rtol=1e-5)


def test_an_unknown_loss_is_named():
    with pytest.raises(UserError, match="loss is 'hinge'"):
        losses.get("hinge")
