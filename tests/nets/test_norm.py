"""Batch normalisation is flax's, with another derivative."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.nets.norm import BatchNorm


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_equal_to_flax_with_all_derivatives(train, masked):
    keys = jax.random.split(jax.random.key(0), 3)
    x = 2.0 + jax.random.normal(keys[0], (5, 4, 3, 2))
    valid = jnp.asarray([1, 1, 0, 1, 0], bool) if masked else None
    theirs = nn.BatchNorm(use_running_average=not train, momentum=0.9, use_fast_variance=False)
    variables = theirs.init(keys[1], x)
    jax.tree.map(np.testing.assert_array_equal, BatchNorm(train).init(keys[1], x, valid), variables)
    variables = jax.tree.map(lambda leaf: leaf + 0.5, variables)

    def run(apply):
        def loss(params, x):
            y, after = apply({**variables, "params": params}, x)
            state = sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(after))
            return jnp.sum(jnp.sin(y)) + state, (y, after)

        slope = jax.grad(loss, argnums=(0, 1), has_aux=True)
        at = (variables["params"], x)
        step = jax.tree.map(jnp.cos, at)
        size = lambda *at: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope(*at)[0]))  # noqa: E731
        return slope(*at), jax.jvp(slope, at, step), jax.grad(size, argnums=(0, 1))(*at)

    mask = None if valid is None else valid[:, None, None, None]
    ours, flax = jax.jit(
        lambda: (
            run(lambda v, x: BatchNorm(train).apply(v, x, valid, mutable=["batch_stats"])),
            run(lambda v, x: theirs.apply(v, x, mask=mask, mutable=["batch_stats"])),
        )
    )()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, flax)
