"""Shapes, sizes, and the invisibility of padding, for every net."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pbcs_jax.errors import UserError
from pbcs_jax.nets import MLP, ConvNet, ResNet18, ResNet32, as_model, create

SMALL = {
    "mlp": (MLP(10, hidden=(20, 15)), (28, 28, 1), 15),
    "convnet": (ConvNet(10, width=4), (28, 28, 1), 16),
    "convnet_cifar": (ConvNet(7, width=4), (32, 32, 3), 16),
    "resnet18": (ResNet18(10, width=2, stages=(1, 1)), (8, 8, 3), 4),
    "resnet32": (ResNet32(10, width=4, stages=(2,)), (6, 6, 3), 4),
}
small = pytest.mark.parametrize(("net", "shape", "width"), SMALL.values(), ids=SMALL.keys())


def _batch(shape, rows=6):
    keys = jax.random.split(jax.random.key(7), 2)
    return jax.random.normal(keys[0], (rows, *shape)), jax.random.randint(keys[1], (rows,), 0, 7)


def _variables(model, x):
    """Random parameters of the right shapes: compiling a net's `init` takes longer."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    params = jax.tree.map(
        lambda p: jnp.asarray(rng.normal(0.0, p.shape[-1] ** -0.5, p.shape), p.dtype),
        shapes["params"],
    )
    return {"params": params, "state": jax.tree.map(lambda s: jnp.ones(s.shape), shapes["state"])}


def _padded(x, capacity, filling):
    return jnp.full((capacity, *x.shape[1:]), filling, x.dtype).at[: len(x)].set(x)


@small
def test_shapes(net, shape, width):
    x, _ = _batch(shape)
    model = as_model(net)
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    outputs, after = jax.eval_shape(model.apply, variables, x)
    assert outputs.shape == (6, net.num_classes)
    assert jax.eval_shape(model.embed, variables, x).shape == (6, width)
    assert after == variables


@pytest.mark.parametrize(
    ("net", "shape", "count"),
    [
        (MLP(), (28, 28, 1), 784 * 100 + 100 + 100 * 100 + 100 + 1010),
        (ConvNet(), (28, 28, 1), 26 * 32 + (800 + 1) * 64 + 1025 * 128 + 1290),
        (ConvNet(100), (32, 32, 3), 76 * 32 + (800 + 1) * 64 + 1601 * 128 + 12900),
        (ResNet18(), (32, 32, 3), 11_173_962),
        # The published 464,154 with shortcuts that pad, and here two 1x1 projections with norms.
        (ResNet32(), (32, 32, 3), 464_154 + (16 * 32 + 64) + (32 * 64 + 128)),
    ],
)
def test_parameter_counts(net, shape, count):
    x = jnp.zeros((1, *shape))
    variables = jax.eval_shape(as_model(net).init, jax.random.key(0), x)
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == count


@small
def test_padding_is_invisible(net, shape, width):
    del width
    x, y = _batch(shape)
    model = as_model(net)
    variables = _variables(model, x)

    @jax.jit
    def step(x, y, mask):
        def loss(params):
            logits, after = model.apply({**variables, "params": params}, x, train=True, mask=mask)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return jnp.sum(jnp.where(mask > 0, losses, 0.0)) / jnp.sum(mask), after["state"]

        (value, state), grad = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        return value, state, grad

    exact = step(x, y, jnp.ones(6))
    padded = step(_padded(x, 11, 1e3), _padded(y, 11, 0), _padded(jnp.ones(6), 11, 0.0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), exact, padded)


def test_statistics_move_when_training_and_serve_when_not():
    x, _ = _batch((8, 8, 3))
    model = as_model(ResNet32(10, width=4, stages=(1,)))
    variables = _variables(model, x)
    train = jax.jit(functools.partial(model.apply, train=True))
    test = jax.jit(model.apply)
    _, after = train(variables, x)
    mean = after["state"]["batch_stats"]["BatchNorm_0"]["mean"]
    assert np.abs(mean - 1.0).max() > 1e-2
    outputs, unchanged = test(after, x)
    jax.tree.map(np.testing.assert_array_equal, after, unchanged)
    np.testing.assert_allclose(outputs[:2], test(after, x[:2])[0], rtol=1e-4, atol=1e-5)
    assert np.abs(outputs - test(variables, x)[0]).max() > 1e-3


def test_variance_of_a_channel_with_a_large_mean():
    model = as_model(ResNet32(10, width=4, stages=(1,)))
    x = 1.0 + 1e-4 * jax.random.normal(jax.random.key(0), (64, 8, 8, 3))
    variables = _variables(model, x)
    kernel = variables["params"]["Conv_0"]["kernel"]
    variables["params"]["Conv_0"]["kernel"] = jnp.zeros_like(kernel).at[1, 1].set(1.0)
    _, after = jax.jit(functools.partial(model.apply, train=True))(variables, x)
    variance = after["state"]["batch_stats"]["BatchNorm_0"]["var"]
    expected = 0.9 + 0.1 * np.asarray(x, np.float64).sum(-1).var()
    np.testing.assert_allclose(variance, expected, rtol=1e-6)


@pytest.mark.parametrize("net", [MLP(hidden=(30,), dropout=0.5), ConvNet(width=4, dropout=0.5)])
def test_dropout_of_a_row_does_not_depend_on_padding(net):
    x, _ = _batch((28, 28, 1))
    model = as_model(net)
    variables = _variables(model, x)
    train = jax.jit(lambda x, key: model.apply(variables, x, key=key, train=True)[0])
    test = jax.jit(lambda x, key=None: model.apply(variables, x, key=key)[0])
    key = jax.random.key(3)
    outputs, padded = train(x, key), train(_padded(x, 11, 1e3), key)
    # Matmuls of other shapes round otherwise, by that much of the largest numbers.
    np.testing.assert_allclose(outputs, padded[:6], atol=1e-5 * np.abs(outputs).max())
    assert np.abs(outputs - train(x, jax.random.key(4))).max() > 1e-3
    np.testing.assert_array_equal(test(x, key), test(x))


def test_create():
    assert create("convnet", 7, width=8, dropout=0.5) == ConvNet(7, width=8, dropout=0.5)
    assert create("resnet32", 10).stages == (5, 5, 5)
    with pytest.raises(UserError, match="net is 'vgg': use one of mlp, convnet, resnet18"):
        create("vgg", 10)
    with pytest.raises(UserError, match=r"net 'mlp' is width: use dropout, hidden"):
        create("mlp", 10, width=3)
