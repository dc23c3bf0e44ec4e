"""The implementations of the convolution agree, and pooling is pooling."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.errors import UserError
from pbcs_jax.nets import Conv, max_pool
from pbcs_jax.nets.conv import swap_batch


def _loss(layer, weights):
    return lambda params, x: jnp.sum(layer.apply(params, x) * weights)


class _BatchLast:
    """A layer on `[C, H, W, B]`, used as one on `[B, H, W, C]`."""

    def __init__(self, layer):
        self._layer = layer

    def apply(self, params, x, *train, **rngs):
        return swap_batch(self._layer.apply(params, swap_batch(x), *train, **rngs))


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("implementation", "size", "kernel_size", "strides", "channels"),
    [
        ("patches", (9, 7), (5, 5), (1, 1), 2),
        ("patches", (9, 8), (3, 3), (2, 2), 2),
        ("patches", (11, 10), (4, 3), (2, 1), 2),
        ("patches", (7, 7), (1, 1), (2, 2), 2),
        ("winograd", (12, 12), (5, 5), (1, 1), 8),
        ("winograd", (11, 8), (3, 3), (1, 1), 8),
        ("winograd", (9, 14), (5, 5), (1, 1), 8),
        ("direct", (8, 8), (3, 3), (1, 1), 4),
        ("direct", (9, 7), (3, 3), (2, 2), 2),
        ("direct", (10, 12), (5, 4), (3, 2), 2),
        ("direct", (8, 9), (1, 1), (3, 3), 2),
        ("batch_last", (9, 8), (5, 5), (1, 1), 2),
        ("batch_last", (8, 7), (3, 5), (1, 1), 1),
        ("batch_last", (9, 8), (3, 3), (2, 2), 2),
    ],
)
def test_equal_to_native_forward_and_backward(
    implementation, size, kernel_size, strides, channels, padding, pool
):
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (3, *size, channels))
    kernel = jax.random.normal(keys[1], (*kernel_size, channels, 4)) / 5
    params = {"params": {"kernel": kernel, "bias": jax.random.normal(keys[2], (4,))}}

    def run(implementation):
        layer = partial(Conv, 4, kernel_size, strides, padding, pool=pool)
        if implementation == "batch_last":
            layer = _BatchLast(layer(batch_last=True))
        else:
            layer = layer(implementation=implementation)
        outputs = layer.apply(params, x)
        loss = _loss(layer, jax.random.normal(keys[3], outputs.shape))
        return outputs, jax.grad(loss, argnums=(0, 1))(params, x)

    ours, native = jax.jit(lambda: (run(implementation), run("native")))()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-5 * np.abs(b).max()),
        ours,
        native,
    )


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("implementation", ["patches", "winograd", "direct"])
def test_higher_derivatives_equal_native_for_each_mask(implementation, strides):
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (2, 3, 8, 8, 8))
    kernels = jax.random.normal(keys[1], (2, 3, 3, 8, 4)) / 9

    def run(implementation):
        layer = Conv(4, (3, 3), strides, use_bias=False, implementation=implementation)

        def loss(kernel, x):
            return jnp.sum(jnp.sin(layer.apply({"params": {"kernel": kernel}}, x)))

        slope = jax.grad(loss, argnums=(0, 1))

        def size(kernel, x):
            return sum(jnp.sum(jnp.cos(leaf)) for leaf in slope(kernel, x))

        def forward(kernel, x):
            return jax.jvp(slope, (kernel, x), (jnp.cos(kernel), jnp.cos(x)))

        backward = jax.grad(size, argnums=(0, 1))
        shared = jax.grad(lambda k: jnp.sum(jax.vmap(loss, (None, 0))(k, x)))(kernels[0])
        return jax.vmap(forward)(kernels, x), jax.vmap(backward, (0, None))(kernels, x[0]), shared

    ours, native = jax.jit(lambda: (run(implementation), run("native")))()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max()),
        ours,
        native,
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_same_as_flax(padding):
    x = jax.random.normal(jax.random.key(0), (2, 9, 7, 3))
    ours, theirs = Conv(4, (3, 3), (2, 2), padding), nn.Conv(4, (3, 3), (2, 2), padding)
    params = theirs.init(jax.random.key(1), x)
    jax.tree.map(np.testing.assert_array_equal, ours.init(jax.random.key(1), x), params)
    np.testing.assert_allclose(ours.apply(params, x), theirs.apply(params, x), atol=1e-5)


@pytest.mark.parametrize("channels", [1, 8])
def test_each_mask_has_its_own_weights_and_forward_mode_works(channels):
    layer = Conv(4, (3, 3), padding="VALID", pool=True, implementation="winograd")
    x = jax.random.normal(jax.random.key(0), (3, 2, 8, 8, channels))
    kernels = jax.random.normal(jax.random.key(1), (3, 3, 3, channels, 4)) / 3
    params = {"params": {"kernel": kernels, "bias": jnp.ones((3, 4))}}

    @jax.jit
    def together_and_in_turn(params, x):
        return jax.vmap(layer.apply)(params, x), jax.lax.map(lambda a: layer.apply(*a), (params, x))

    np.testing.assert_allclose(*together_and_in_turn(params, x), atol=1e-5)

    @jax.jit
    def slopes(params, x):
        grad = jax.grad(_loss(layer, jnp.cos(jnp.arange(4.0))))(params, x)
        _, forward = jax.jvp(
            lambda params: _loss(layer, jnp.cos(jnp.arange(4.0)))(params, x), (params,), (grad,)
        )
        return forward, sum(jnp.sum(g**2) for g in jax.tree.leaves(grad))

    np.testing.assert_allclose(*slopes(jax.tree.map(lambda p: p[0], params), x[0]), rtol=1e-4)


@pytest.mark.parametrize("size", [(6, 8), (7, 5)])
@pytest.mark.parametrize("ties", [False, True])
def test_max_pool_equals_flax_forward_and_backward(size, ties):
    x = jax.random.normal(jax.random.key(0), (2, *size, 3))
    if ties:
        x = jnp.round(x)

    def flax_pool(x):
        return nn.max_pool(x, (2, 2), (2, 2))

    @jax.jit
    def run(x):
        weights = jax.random.normal(jax.random.key(1), flax_pool(x).shape)
        return [
            (f(x), jax.grad(lambda x, f=f: jnp.sum(f(x) * weights))(x))
            for f in (max_pool, flax_pool)
        ]

    jax.tree.map(np.testing.assert_array_equal, *run(x))


def test_max_pool_keeps_nan():
    windows = jnp.where(jnp.eye(4, dtype=bool), jnp.nan, 0.0).reshape(4, 2, 2, 1)
    assert jnp.isnan(jax.jit(max_pool)(windows)).all()


@pytest.mark.parametrize(
    ("implementation", "channels"),
    [("patches", 1), ("winograd", 8), ("direct", 2), ("native", 2), ("batch_last", 2)],
)
def test_dropout_comes_before_the_pooling_for_a_relu_that_follows(implementation, channels):
    """Each output is the r-th largest of its window with probability (1 - p) p^r, or 0: all four
    dropped. The gradient goes to the one that was taken."""
    rate, rows = 0.25, 400
    keys = jax.random.split(jax.random.key(0), 3)
    x = jnp.repeat(jax.random.normal(keys[0], (1, 8, 8, channels)), rows, axis=0)
    kernel = jax.random.normal(keys[1], (3, 3, channels, 3)) / 3
    params = {"params": {"kernel": kernel, "bias": jnp.full(3, 20.0)}}  # all positive: ReLU is not
    layer = partial(Conv, 3, (3, 3), padding="VALID", dropout=rate, pool=True)
    if implementation == "batch_last":
        layer = _BatchLast(layer(batch_last=True))
    else:
        layer = layer(implementation=implementation)

    @jax.jit
    def run(params, x, key):
        def outputs(params):
            return nn.relu(layer.apply(params, x, True, rngs={"dropout": key}))

        value, pull = jax.vjp(outputs, params)
        return value, pull(jnp.ones_like(value))[0]["params"]["bias"], layer.apply(params, x)

    found, slope, undropped = run(params, x, keys[2])
    whole = Conv(3, (3, 3), padding="VALID", implementation="native").apply(params, x[:1])[0]
    four = np.stack([whole[i::2, j::2] for i in (0, 1) for j in (0, 1)])
    four = np.concatenate([np.sort(four, axis=0)[::-1], np.zeros((1, 3, 3, 3))])  # the last: none
    np.testing.assert_allclose(undropped[0], four[0], rtol=1e-4)
    distance = np.abs(np.asarray(found)[:, None] * (1 - rate) - four)
    assert distance.min(axis=1).max() < 1e-3
    shares = np.bincount(distance.argmin(axis=1).ravel(), minlength=5) / found.size
    expected = np.array([(1 - rate) * rate**r for r in range(4)] + [rate**4])
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / found.size))
    assert len({np.asarray(row).tobytes() for row in found}) > rows // 2  # rows drop by themselves
    alive = np.sum(np.asarray(found) > 0, axis=(0, 1, 2))
    np.testing.assert_allclose(slope, alive / (1 - rate), rtol=1e-5)


def test_unknown_implementation():
    with pytest.raises(UserError, match="is 'fft': use one of patches, winograd"):
        Conv(1, (3, 3), implementation="fft").init(jax.random.key(0), jnp.ones((1, 4, 4, 1)))
