"""The exact quantities of the theorem, against what they are defined as."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import gradient_mapping as mapping

N = 4
LOSSES = jnp.asarray(np.random.default_rng(0).random(2**N), jnp.float32)
S = jnp.array([0.2, 0.5, 0.7, 0.4])


def test_the_expected_loss_is_the_sum_over_all_masks():
    every = mapping.every_mask(N)
    shares = jnp.exp(pbcs.mask_log_prob(every, S))
    assert float(mapping.expected_loss(LOSSES, S)) == pytest.approx(float(shares @ LOSSES))
    one = jnp.zeros(N).at[1].set(1.0)
    assert float(mapping.expected_loss(LOSSES, one)) == float(LOSSES[4])
    with pytest.raises(UserError, match="at most"):
        mapping.every_mask(40)


def test_no_hessian_is_larger_than_the_smoothness():
    hessian = jax.jit(jax.hessian(mapping.expected_loss, 1))
    points = [*jax.random.uniform(jax.random.key(0), (5, N)), *mapping.every_mask(N)]
    norms = [np.linalg.norm(hessian(LOSSES, s), 2) for s in points]
    assert max(norms) <= mapping.smoothness(LOSSES) * (1 + 1e-5)
    assert mapping.smoothness(LOSSES) < 3 * max(norms)


def test_the_squared_error_is_what_estimates_have():
    places = 2.0 ** jnp.arange(N - 1, -1, -1)
    gradient = jax.grad(mapping.expected_loss, 1)(LOSSES, S)

    @jax.jit
    @jax.vmap
    def error(key):
        masks = pbcs.sample_masks(key, S, 3)
        losses = LOSSES[(masks @ places).astype(jnp.int32)]
        found = pbcs.policy_gradient(losses, masks, S, baseline="none")
        return jnp.sum((found - gradient) ** 2)

    found = error(jax.random.split(jax.random.key(1), 20_000))
    expected = float(mapping.squared_error(LOSSES, S, 3))
    assert float(found.mean()) == pytest.approx(expected, rel=0.05)
    # A decided candidate has no score: what is left is the bias.
    decided = jnp.array([0.0, 1.0, 0.0, 1.0])
    slope = jax.grad(mapping.expected_loss, 1)(LOSSES, decided)
    assert float(mapping.squared_error(LOSSES, decided, 3)) == pytest.approx(float(slope @ slope))


def test_a_trace_stays_below_the_bound():
    smooth = mapping.smoothness(LOSSES)
    rate = 0.3 / smooth
    found, last = mapping.trace(jax.random.key(0), LOSSES, 2, rate, 4, 40, 3)
    assert found.mapping.shape == (40,) and last.shape == (3, N)
    assert np.all(last.sum(1) <= 2 + 1e-5)
    first, second = mapping.bound(found, LOSSES, 2, rate, smooth)
    running = np.cumsum(found.mapping) / np.arange(1, 41)
    assert np.all(running <= first + second)
    assert first[0] > 0 and first[-1] == pytest.approx(first[0] / 40)
