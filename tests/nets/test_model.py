"""Whatever a user calls a model becomes the same three functions."""

import doctest
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.nets import MLP, Model, as_model, flax_nnx, from_nnx, model, registry

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


class Net(nnx.Module):
    """BatchNorm and Dropout, and a layer in a list, in NNX."""

    def __init__(self, width=8, *, rngs):
        self.layers = nnx.List([nnx.Linear(2, width, rngs=rngs), nnx.Linear(width, 2, rngs=rngs)])
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x, mask=None):
        mask = None if mask is None else mask[:, None]
        x = nnx.relu(self.norm(self.layers[0](x), mask=mask))
        return self.layers[1](self.dropout(x))


class LinenNet(nn.Module):
    """`Net`, in linen."""

    @nn.compact
    def __call__(self, x, train=False, mask=None):
        mask = None if mask is None else mask[:, None]
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x), mask=mask)
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


def in_linen(variables):
    """The variables of `Net` as those of `LinenNet`."""
    params, state = variables["params"], variables["state"]
    dense = {"Dense_0": params["layers"][0], "Dense_1": params["layers"][1]}
    return {
        "params": {**dense, "BatchNorm_0": params["norm"]},
        "state": {"batch_stats": {"BatchNorm_0": state["norm"]}},
    }


def test_nnx_is_as_linen_with_the_same_weights():
    ours, theirs = from_nnx(Net), as_model(LinenNet())
    variables = ours.init(jax.random.key(0), X)
    assert jax.tree.map(jnp.shape, variables["state"]) == {"norm": {"mean": (8,), "var": (8,)}}
    _, after = ours.apply(variables, X, key=jax.random.key(1), train=True)
    _, expected = theirs.apply(in_linen(variables), X, key=jax.random.key(1), train=True)
    assert jax.tree.structure(after) == jax.tree.structure(variables)
    jax.tree.map(np.testing.assert_allclose, in_linen(after), expected)
    assert jnp.any(after["state"]["norm"]["mean"] != 0)

    outputs, same = ours.apply(after, X)
    np.testing.assert_allclose(outputs, theirs.apply(in_linen(after), X)[0], rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, same, after)


def test_nnx_dropout_comes_from_the_key_of_the_call():
    net = from_nnx(Net)
    variables = net.init(jax.random.key(0), X)
    call = lambda key, train: net.apply(variables, X, key=jax.random.key(key), train=train)[0]  # noqa: E731
    np.testing.assert_array_equal(call(1, True), call(1, True))
    assert jnp.any(call(1, True) != call(2, True))
    np.testing.assert_array_equal(call(1, False), call(2, False))
    np.testing.assert_array_equal(call(1, False), net.apply(variables, X)[0])
    with pytest.raises(UserError, match=r"key is None: Net has random streams"):
        net.apply(variables, X, train=True)


class TwoDropouts(nnx.Module):
    """One Dropout with a stream of its own, one that is given `rngs` in the call."""

    def __init__(self, rngs):
        self.own, self.given = nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5)

    def __call__(self, x, rngs=None):
        return jnp.stack([self.own(x), self.own(x), self.given(x, rngs=rngs)], 1)


def test_nnx_dropouts_differ_from_each_other():
    net, ones = from_nnx(TwoDropouts), jnp.ones((1, 64))
    variables = net.init(jax.random.key(0), ones)
    assert variables == {"params": {}, "state": {}}
    a, b, c = net.apply(variables, ones, key=jax.random.key(1), train=True)[0][0]
    assert jnp.any(a != b) and jnp.any(b != c) and jnp.any(a != c)
    np.testing.assert_array_equal(net.apply(variables, ones)[0], jnp.ones((1, 3, 64)))


@pytest.mark.parametrize("dtype", [bool, jnp.float32])
def test_nnx_padding_rows_leave_the_statistics_alone(dtype):
    net = from_nnx(Net)
    variables = net.init(jax.random.key(0), X)
    padded = jnp.concatenate([X, jnp.full((2, 2), 1e3)])
    mask = jnp.array([1, 1, 1, 0, 0], dtype)
    options = {"key": jax.random.key(1), "train": True}
    _, expected = net.apply(variables, X, **options)
    _, after = net.apply(variables, padded, mask=mask, **options)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), after["state"], expected["state"])
    _, wrong = net.apply(variables, padded, **options)
    assert jnp.any(jnp.abs(wrong["state"]["norm"]["mean"] - after["state"]["norm"]["mean"]) > 1e-3)


@pytest.mark.parametrize("estimator", ["pge", "hybrid"])
def test_nnx_net_selects_and_one_key_gives_one_result(estimator):
    x = jax.random.normal(jax.random.key(0), (60, 2))
    y = (x[:, 0] > 0).astype(int)
    objective = pbcs.Network(pbcs.Inner(steps=5, batch_size=4))
    quick = {"objective": objective, "outer_steps": 3, "estimator": estimator}
    select = lambda: pbcs.select_coreset(jax.random.key(1), x, y, from_nnx(Net), 6, **quick)  # noqa: E731
    first, second = select(), select()
    assert np.all(np.isfinite(first.history["outer_loss"]))
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.probabilities, second.probabilities)


def test_nnx_works_under_vmap_scan_switch_and_grad():
    net = from_nnx(Net)
    keys = jax.random.split(jax.random.key(0), 3)

    @jax.jit
    @jax.vmap
    def train(key):
        def loss(params, state, key):
            outputs, variables = net.apply(
                {"params": params, "state": state}, X, key=key, train=True
            )
            return jnp.mean(outputs**2), variables["state"]

        def body(variables, key):
            slope, state = jax.grad(loss, has_aux=True)(*variables.values(), key)
            params = jax.tree.map(lambda p, g: p - 0.1 * g, variables["params"], slope)
            return {"params": params, "state": state}, None

        start = net.init(key, X)
        end = jax.lax.scan(body, start, jax.random.split(key, 4))[0]
        return jax.lax.switch(1, [lambda: start, lambda: jax.tree.map(jnp.copy, end)])

    variables = train(keys)
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(variables))
    assert variables["state"]["norm"]["mean"].shape == (3, 8)


class Odd(nnx.Module):
    """Takes embed, sows, counts its calls in training, and shares a weight."""

    def __init__(self, rngs):
        self.first = nnx.Linear(2, 2, rngs=rngs)
        self.second, self.calls = self.first, nnx.Variable(jnp.array(0))

    def __call__(self, x, embed=False):
        self.calls[...] += 1
        hidden = self.first(x)
        self.hidden = nnx.Intermediate(hidden)
        return hidden if embed else self.second(hidden)


def test_nnx_state_keeps_its_structure_and_embed_is_found():
    odd = from_nnx(Odd)
    variables = odd.init(jax.random.key(0), X)
    assert list(variables["params"]) == ["first"] and list(variables["state"]) == ["calls"]
    outputs, after = odd.apply(variables, X, train=True)
    assert jax.tree.structure(after) == jax.tree.structure(variables)
    assert after["state"]["calls"] == 1 and odd.apply(after, X)[1]["state"]["calls"] == 1
    layer = variables["params"]["first"]
    hidden = X @ layer["kernel"] + layer["bias"]
    np.testing.assert_allclose(odd.embed(variables, X), hidden, rtol=1e-6)
    np.testing.assert_allclose(outputs, hidden @ layer["kernel"] + layer["bias"], rtol=1e-6)
    assert from_nnx(Net).embed is None


def test_nnx_models_are_the_same_for_the_same_maker():
    assert from_nnx(Net) is from_nnx(Net)
    assert from_nnx(partial(Net, 4)) is from_nnx(partial(Net, 4))
    assert from_nnx(partial(Net, 4)) != from_nnx(partial(Net, width=5))
    assert as_model(from_nnx(Net)) is from_nnx(Net)
    sequential = from_nnx(lambda r: nnx.Sequential(nnx.Linear(2, 3, rngs=r), nnx.relu))
    variables = sequential.init(jax.random.key(0), X)
    outputs, _ = sequential.apply(variables, X, train=True, mask=jnp.ones(3))
    assert outputs.shape == (3, 3)


class Bare(nnx.Module):
    def __init__(self, rngs):
        self.scale = jnp.ones(3) * 2

    def __call__(self, x):
        return x * self.scale


class Key(nnx.Module):
    def __init__(self, rngs):
        self.noise = nnx.Variable(rngs())

    def __call__(self, x):
        return x


class Silent(nnx.Module):
    def __init__(self, rngs):
        pass


class Wide(nnx.Module):
    def __init__(self, features, *, rngs):
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (3, r"make is 3: give a function of an nnx.Rngs"),
        (Net(rngs=nnx.Rngs(0)), r"make is an instance of Net: give what makes it, from_nnx\(Net"),
        (Wide, r"make is Wide\(features, rngs\): it is called with rngs and nothing else"),
        (lambda: None, r"make is <lambda>\(\): it is called with rngs and nothing else"),
        (MLP, r"MLP\(rngs\) is of type MLP: from_nnx needs an nnx.Module"),
        (Bare, r"Bare.scale is a bare array: keep it as nnx.Variable"),
        (Key, r"Key.noise is a random key: keep `rngs` itself"),
        (Silent, r"Silent.__call__ is missing"),
    ],
)
def test_what_from_nnx_refuses(make, message):
    with pytest.raises(UserError, match=message):
        from_nnx(make)


def test_the_library_is_imported_without_nnx():
    program = "import sys, pbcs_jax; assert 'flax.nnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


class Mute(nn.Module):
    """Has no __call__."""


class TorchLike:
    """Stands for `torch.nn.Module`, which the tests do without."""


class TorchNet(TorchLike):
    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3, r"model is 3: give a flax.linen module, or a pair of functions"),
        (np.ones((9, 9)), r"model is array.*: give a flax.linen module"),
        (MLP, r"model is the class MLP: give an instance, MLP\(\.\.\.\)"),
        (partial(MLP, 3), r"model is the class MLP: give an instance"),
        (len, r"model is the one function len: give a pair of functions"),
        ((len,), r"model is a tuple of 1, \(len\): give a pair"),
        ((len, 3), r"model is a tuple of 2, \(len, int\): give a pair"),
        ((len, len, len), r"model is a tuple of 3, \(len, len, len\): give a pair"),
        ((MLP(2), {}), r"model is a tuple of 2, \(MLP, dict\): give a pair"),
        ((len, len), r"init of the model is len\(obj\): it is called with \(key, x\)"),
        ((isinstance, len), r"apply of the model is len\(obj\): .* with \(params, x\)"),
        (Net, r"model is the NNX class Net: wrap what makes it, nets.from_nnx\(Net\)"),
        (partial(Net, 3), r"model is the NNX class Net: wrap what makes it"),
        (Net(rngs=nnx.Rngs(0)), r"model is an instance of the NNX class Net: .*from_nnx\(Net\)"),
        (TorchNet(), r"model is the torch module TorchNet: write it in JAX"),
        (TorchNet, r"model is the torch module TorchNet: write it in JAX"),
        (Mute(), r"Mute.__call__ is missing"),
    ],
)
def test_what_is_not_a_model(bad, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=TorchLike))
    with pytest.raises(UserError, match=message) as caught:
        as_model(bad)
    assert "\n" not in str(caught.value)


def test_module_that_needs_more():
    with pytest.raises(UserError, match=r"Unfit.__call__ needs deterministic"):
        as_model(Unfit())


@pytest.mark.parametrize("module", [model, flax_nnx, registry])
def test_examples(module):
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
