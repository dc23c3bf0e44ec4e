"""Exchanges of inputs: they end where no trial helps, and find what the probabilities missed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.objectives import input_kernel
from pbcs_jax.objectives.exchange import exchange_inputs
from pbcs_jax.outer.base import Evaluation

N = 9
WANTED = jnp.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0, 3.5, 8.0])


def evaluate(values, key, masks):
    """Worth of the inputs, with a price on pairs of neighbours: no swap of one says it all."""
    worth = masks @ values
    price = 2.0 * jnp.sum(masks[:, 1:] * masks[:, :-1], axis=1)
    gradients = -values + 2.0 * (jnp.pad(masks[:, 1:], ((0, 0), (0, 1))))
    gradients += 2.0 * jnp.pad(masks[:, :-1], ((0, 0), (1, 0)))
    losses = 40.0 - worth + price
    return Evaluation(losses, jnp.isfinite(losses), gradients)


OBJECTIVE = jax.tree_util.Partial(evaluate, WANTED)


def loss(chosen):
    mask = jnp.zeros((1, N)).at[0, jnp.asarray(chosen)].set(1.0)
    return float(OBJECTIVE(None, mask).losses[0])


@pytest.mark.parametrize("size", [1, 3, 6, 8])
def test_it_ends_where_no_swap_of_one_helps(size):
    start = np.arange(size)
    found = exchange_inputs(jax.random.key(0), OBJECTIVE, OBJECTIVE, start, N, 50)
    assert len(set(found.tolist())) == size and found.tolist() == sorted(found.tolist())
    assert loss(found) < loss(start)
    for leaves in found:
        for comes in set(range(N)) - set(found.tolist()):
            assert loss([*(set(found.tolist()) - {leaves}), comes]) >= loss(found) - 1e-4


def test_one_swap_at_most_and_nothing_to_swap():
    start = np.array([1, 3])
    once = exchange_inputs(jax.random.key(0), OBJECTIVE, OBJECTIVE, start, N, 1)
    assert len(set(once.tolist()) & set(start.tolist())) == 1 and 4 in once
    for kept, most in ((np.arange(N), 10), (start, 0)):
        found = exchange_inputs(jax.random.key(0), OBJECTIVE, OBJECTIVE, kept, N, most)
        np.testing.assert_array_equal(found, kept)


def test_selections_end_with_a_lower_leave_one_out_error():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 30)).astype(np.float32)
    y = ((x[:, 3] > 0).astype(int) + (x[:, 17] + x[:, 20] > 0)).astype(int)
    data = input_kernel.gather(x, y)
    exact = input_kernel.input_kernel_objective(data, pbcs.InputKernel(1.0, 0.1, samples=80))

    def error(indices):
        mask = jnp.zeros((1, 30)).at[0, jnp.asarray(indices)].set(1.0)
        return float(exact(jax.random.key(0), mask).losses[0])

    chosen = [
        pbcs.select_features(
            jax.random.key(1),
            x,
            y,
            None,
            3,
            objective=pbcs.InputKernel(bandwidth=1.0, ridge=0.1, exchanges=exchanges),
            outer_steps=1,
        ).indices
        for exchanges in (0, 20)
    ]
    assert error(chosen[1]) < error(chosen[0])
    assert chosen[1].tolist() == [3, 17, 20]


def test_what_cannot_be_exchanged_is_said_before_the_selection():
    x, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2
    kernel = pbcs.InputKernel(outer_loss="error_rate", exchanges=3)

    def never(state, metrics):
        raise AssertionError("the selection began")

    with pytest.raises(UserError, match="error_rate"):
        pbcs.select_features(
            jax.random.key(0),
            x,
            y,
            None,
            2,
            objective=kernel,
            estimator="pge",
            callback=never,
        )
    with pytest.raises(UserError, match="exchanges is -1"):
        pbcs.InputKernel(exchanges=-1)
    with pytest.raises(UserError, match="exchange_samples is 1"):
        pbcs.InputKernel(exchange_samples=1)
