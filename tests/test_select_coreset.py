"""`select_coreset`, as research code uses it."""

import doctest
import gc
import importlib
import pkgutil
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError

QUICK = {"objective": pbcs.Network(pbcs.Inner(steps=30)), "outer_steps": 60, "num_masks": 8}


def blobs(n, key=0, wrong=0.0):
    """Two Gaussian classes in the plane, a fraction of the labels wrong."""
    noise_key, flip_key = jax.random.split(jax.random.key(key))
    true = jnp.arange(n) % 2
    x = jax.random.normal(noise_key, (n, 2)) + 2.0 * (2 * true[:, None] - 1)
    flip = jax.random.uniform(flip_key, (n,)) < wrong
    return x, jnp.where(flip, 1 - true, true), true


class Linear(nn.Module):
    outputs: int = 2

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(x)


def as_pair():
    def init(key, x):
        return {"w": 0.1 * jax.random.normal(key, (x.shape[-1], 2)), "b": jnp.zeros(2)}

    def apply(params, x):
        return x @ params["w"] + params["b"]

    return init, apply


@pytest.mark.parametrize(
    ("model", "estimator"),
    [(Linear(), "pge"), (as_pair(), "pge"), (Linear(), "gumbel"), (Linear(), "hybrid")],
    ids=["linen", "pair", "gumbel", "hybrid"],
)
def test_it_leaves_wrong_labels_out(model, estimator):
    x, y, true = blobs(80, wrong=0.4)
    x_val, y_val, _ = blobs(40, key=1)
    result = pbcs.select_coreset(
        jax.random.key(0),
        x,
        y,
        model,
        10,
        validation=(x_val, y_val),
        estimator=estimator,
        **QUICK,
    )
    assert result.indices.shape == (10,) and len(set(result.indices.tolist())) == 10
    assert np.mean(np.asarray(y != true)[result.indices]) <= 0.1 < np.mean(y != true)
    assert result.probabilities.shape == (80,)
    assert result.history["outer_loss"][-10:].mean() < result.history["outer_loss"][:10].mean()


def test_the_same_key_gives_the_same_coreset():
    x, y, _ = blobs(40)
    runs = [
        pbcs.select_coreset(
            jax.random.key(k),
            x,
            y,
            Linear(),
            5,
            objective=pbcs.Network(pbcs.Inner(steps=5)),
            outer_steps=5,
        )
        for k in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0].probabilities, runs[1].probabilities)
    assert np.abs(runs[0].probabilities - runs[2].probabilities).max() > 0


def test_regression_targets():
    x = jnp.linspace(-1, 1, 40)[:, None]
    spoiled = jnp.arange(40) % 4 == 0
    y = jnp.where(spoiled, 5.0, 2 * x[:, 0])
    x_val = jnp.linspace(-1, 1, 15)[:, None]
    result = pbcs.select_coreset(
        jax.random.key(0),
        x,
        y,
        Linear(outputs=1),
        6,
        validation=(x_val, 2 * x_val[:, 0]),
        objective=pbcs.Network(
            pbcs.Inner(steps=30), loss_fn="squared_error", outer_loss="squared_error"
        ),
        outer_steps=60,
    )
    assert np.asarray(spoiled)[result.indices].sum() == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 41}, "size is 41"),
        ({"y": jnp.arange(39) % 2}, "40 rows and y 39"),
        ({"x": jnp.zeros((40, 2)).at[3, 1].set(jnp.nan)}, "x is nan at row 3, column 1"),
        ({"estimator": "magic"}, "magic"),
        ({"objective": "magic"}, "magic"),
        ({"learning_rat": 0.1}, "learning_rat"),
        ({"model": "resnet"}, "resnet"),
    ],
)
def test_bad_input_is_said_in_one_line(change, said):
    x, y, _ = blobs(40)
    arguments = {"x": x, "y": y, "model": Linear(), "size": 5, "outer_steps": 1}
    arguments |= {"objective": "network", **change}
    with pytest.raises(UserError, match=said) as caught:
        pbcs.select_coreset(jax.random.key(0), **arguments)
    assert "\n" not in str(caught.value)


MODULES = [m.name for m in pkgutil.walk_packages(pbcs.__path__, "pbcs_jax.")]


@pytest.mark.parametrize("name", ["pbcs_jax", *MODULES])
def test_the_examples_in_docstrings_are_true(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(name), optionflags=flags).failed == 0


def test_every_public_function_has_a_docstring():
    for name in pbcs.__all__:
        assert getattr(pbcs, name).__doc__, name


def test_an_nnx_model_without_state_fits_in_as_a_pair_too():
    class MyModel(nnx.Module):
        def __init__(self, rngs):
            self.hidden, self.out = nnx.Linear(2, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)

        def __call__(self, x):
            return self.out(nnx.relu(self.hidden(x)))

    graphdef, _ = nnx.split(MyModel(rngs=nnx.Rngs(0)))
    init = lambda key, x: nnx.state(MyModel(rngs=nnx.Rngs(key)))  # noqa: E731
    apply = lambda params, x: nnx.merge(graphdef, params)(x)  # noqa: E731
    x, y, _ = blobs(40)
    quick = {"objective": pbcs.Network(pbcs.Inner(steps=20)), "outer_steps": 5}
    result = pbcs.select_coreset(jax.random.key(0), x, y, (init, apply), 5, **quick)
    assert result.history["outer_accuracy"][-1] > 0.8


@pytest.mark.parametrize("choose", [pbcs.select_coreset, pbcs.select_features])
def test_no_key_is_used_twice(choose, monkeypatch):
    """What builds the objective and what draws the masks get keys of their own."""
    seen = []

    class Spy(pbcs.Network):
        def build(self, key, *arguments):
            seen.append(key)
            return super().build(key, *arguments)

    def init(key, *arguments):
        seen.append(key)
        return pbcs.init(key, *arguments)

    monkeypatch.setattr("pbcs_jax.outer.loop.init", init)
    x, y, _ = blobs(20)
    choose(jax.random.key(0), x, y, Linear(), 2, objective=Spy(pbcs.Inner(steps=1)), outer_steps=1)
    keys = {tuple(jax.random.key_data(key).tolist()) for key in seen}
    assert len(seen) == len(keys) == 2


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts the maps of a process")
def test_a_process_may_select_as_often_as_it_likes():
    """Compiled programs were kept for ever: the 270th selection of a process ended in an abort."""
    x, y, _ = blobs(40)

    def maps_after(times):
        for _ in range(times):
            quick = {"objective": "kernel", "outer_steps": 1, "num_masks": 2, "ridge": 0.1}
            pbcs.select_coreset(0, x, y, None, 5, **quick)
            pbcs.select_features(0, x, y, None, 1, **quick, bandwidth=1.0, exchanges=1)
        gc.collect()
        return len(Path("/proc/self/maps").read_text().splitlines())

    before = maps_after(1)
    assert maps_after(2) < before + 100
