"""Whatever a user calls a model becomes the same three functions."""

import doctest

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.errors import UserError
from pbcs_jax.nets import MLP, Model, as_model, model, registry

X = jnp.arange(6.0).reshape(3, 2)


class Plain(nn.Module):
    """Takes nothing but x."""

    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(4)(inputs)


class Required(nn.Module):
    """Takes train, without a default, as the second argument."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dropout(0.5, deterministic=not train)(x)


class Unfit(nn.Module):
    """Needs an argument that nobody can give."""

    @nn.compact
    def __call__(self, x, deterministic):
        return x


def test_linen_module_that_takes_only_x():
    plain = as_model(Plain())
    variables = plain.init(jax.random.key(0), X)
    assert variables["state"] == {} and plain.embed is None
    outputs, after = plain.apply(variables, X, key=jax.random.key(1), train=True, mask=jnp.ones(3))
    expected = Plain().apply({"params": variables["params"]}, X)
    np.testing.assert_array_equal(outputs, expected)
    assert after["state"] == {}


def test_linen_module_with_state_and_dropout():
    required = as_model(Required())
    variables = required.init(jax.random.key(0), X)
    _, after = required.apply(variables, X, key=jax.random.key(1), train=True)
    np.testing.assert_allclose(after["state"]["batch_stats"]["BatchNorm_0"]["mean"], [0.02, 0.03])
    assert jax.tree.structure(after) == jax.tree.structure(variables)


def test_pair_of_functions():
    pair = (lambda key, x: jax.random.normal(key, x.shape[1:]), lambda params, x: x @ params)
    ours = as_model(pair)
    variables = ours.init(jax.random.key(0), X)
    outputs, after = ours.apply(variables, X, key=jax.random.key(1), train=True, mask=jnp.ones(3))
    np.testing.assert_array_equal(outputs, X @ variables["params"])
    assert after["state"] == {} and ours.embed is None
    assert as_model(list(pair)) is ours


def test_hashable_and_cached():
    assert as_model(MLP(hidden=(3, 4))) is as_model(MLP(hidden=(3, 4)))
    assert hash(as_model(MLP(hidden=[3, 4])))
    assert as_model(MLP(5)) != as_model(MLP(6))
    ours = as_model(MLP(5))
    assert as_model(ours) is ours and isinstance(ours, Model)
    init = jax.jit(lambda m, key: m.init(key, X), static_argnums=0)
    assert init(ours, jax.random.key(0))["params"]["Dense_2"]["bias"].shape == (5,)


@pytest.mark.parametrize("bad", [MLP, 3, (len,), (len, 3)])
def test_neither_module_nor_pair(bad):
    with pytest.raises(UserError, match=r"give an instance of a flax.linen module, or a pair"):
        as_model(bad)


def test_module_that_needs_more():
    with pytest.raises(UserError, match=r"Unfit.__call__ needs deterministic"):
        as_model(Unfit())


@pytest.mark.parametrize("module", [model, registry])
def test_examples(module):
    assert doctest.testmod(module).failed == 0
