"""Inputs become rows of numbers: by the same function for candidates and for all others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax import nets
from pbcs_jax.errors import UserError
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives import embeddings
from pbcs_jax.objectives.sample_kernel import Kernel
from pbcs_jax.select import select_coreset

PICTURES = np.random.default_rng(0).random((20, 12, 12, 1)).astype(np.float32)
LABELS = np.arange(20) % 3
MLP = nets.MLP(num_classes=3, hidden=(16,))


@pytest.mark.parametrize(
    "name", ["raw", "patches", "ntk", "trained_ntk", "network", "auto", "raw+ntk"]
)
def test_a_row_is_the_same_wherever_it_stands(name):
    made = embeddings.make(
        name, jax.random.key(0), jnp.asarray(PICTURES), LABELS, MLP, [PICTURES[5:9]], 6
    )
    assert made[0].shape[0] == 20
    np.testing.assert_allclose(made[0][5:9], made[1], atol=1e-5)
    assert np.std(np.asarray(made[0]), axis=0).max() > 0


def test_auto_takes_patches_of_pictures_and_anything_else_as_it_is():
    patches, raw = (
        embeddings.make("auto", jax.random.key(0), jnp.asarray(x), LABELS, None, [], 6)[0]
        for x in (PICTURES, PICTURES.reshape(20, 144))
    )
    assert patches.shape == (20, 4 * 4 * 2 * 128)
    np.testing.assert_array_equal(raw, PICTURES.reshape(20, 144))


def test_several_features_together_have_the_mean_of_their_kernels():
    def kernel(name):
        x = jnp.asarray(PICTURES)
        made = embeddings.make(name, jax.random.key(0), x, LABELS, MLP, [], 6)
        rows = embeddings.normalise(made[0])[0]
        return rows @ rows.T

    both = (kernel("patches") + kernel("raw")) / 2
    np.testing.assert_allclose(kernel("patches+raw"), both, atol=1e-5)
    with pytest.raises(UserError, match="'magic'"):
        kernel("raw+magic")


def test_tangents_have_the_products_of_one_outputs_kernel():
    model, x, key = as_model(MLP), jnp.asarray(PICTURES), jax.random.key(0)
    variables = model.init(jax.random.key(1), x[:1])
    found = embeddings.tangents(key, variables, x[:5], model, dimension=8192)
    _, _, output_key = jax.random.split(key, 3)
    signs = jax.random.rademacher(output_key, (3,), jnp.float32) / jnp.sqrt(3)
    jacobian = jax.jacobian(lambda p: model.apply({**variables, "params": p}, x[:5])[0] @ signs)(
        variables["params"]
    )
    flat = jnp.concatenate([leaf.reshape(5, -1) for leaf in jax.tree.leaves(jacobian)], -1)
    exact = flat @ flat.T
    np.testing.assert_allclose(found @ found.T, exact, atol=0.06 * float(exact.max()))


def test_tangents_of_trained_networks_know_what_so_many_samples_teach():
    """Whether two signs agree: ridge regression on 40 samples does better with the tangents of
    networks trained on 300 of them, and these know no more than their K samples."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 6)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    model = nets.MLP(num_classes=2, hidden=(64, 64))

    def right(name, size):
        made = embeddings.make(name, jax.random.key(0), jnp.asarray(x), y, model, [], size)
        rows = np.asarray(embeddings.normalise(made[0])[0])
        dual = np.linalg.solve(rows[:40] @ rows[:40].T + 0.01 * np.eye(40), 2.0 * y[:40] - 1)
        return np.mean((rows[40:] @ rows[:40].T @ dual > 0) == y[40:])

    fresh, few, many = right("ntk", 300), right("trained_ntk", 4), right("trained_ntk", 300)
    assert many > max(fresh, few) + 3 * np.sqrt(0.25 / 560)


@pytest.mark.parametrize("with_validation", [True, False])
def test_networks_are_trained_on_the_validations_shares_of_classes(monkeypatch, with_validation):
    """One candidate of eleven is of class 1, and half of the validation data."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((220, 4)).astype(np.float32)
    y = (np.arange(220) % 11 == 0).astype(int)
    trained_on = []

    def pretrain(key, x, y, model, steps):
        trained_on.append(np.asarray(y))
        return model.init(key, x[:1])

    monkeypatch.setattr(embeddings, "pretrain", pretrain)
    select_coreset(
        jax.random.key(0),
        x,
        y,
        nets.MLP(num_classes=2, hidden=(8,)),
        20,
        validation=(x[:20], np.arange(20) % 2) if with_validation else None,
        objective=Kernel(embeddings="trained_ntk"),
        outer_steps=1,
    )
    assert [len(labels) for labels in trained_on] == [20] * embeddings.NETWORKS["trained_ntk"]
    # Of 160 draws, give or take four standard deviations; without replacement, a little fewer.
    share = np.mean(trained_on)
    expected, spread = (0.44, 0.16) if with_validation else (1 / 11, 0.09)
    assert abs(share - expected) < spread


def test_the_trained_network_makes_linear_what_it_was_taught():
    """Whether two signs agree: no linear function of the inputs tells, one of the features does."""
    rng = np.random.default_rng(0)
    x, others = (rng.standard_normal((n, 4)).astype(np.float32) for n in (600, 300))
    y, truth = ((a[:, 0] * a[:, 1] > 0).astype(int) for a in (x, others))
    model = nets.MLP(num_classes=2, hidden=(64, 64))
    right = {}
    for name in ("raw", "network"):
        a, b = embeddings.make(name, jax.random.key(0), jnp.asarray(x), y, model, [others], 6)
        fit = np.linalg.lstsq(np.c_[a, np.ones(600)], 2.0 * y - 1, rcond=None)[0]
        right[name] = np.mean((np.c_[b, np.ones(300)] @ fit > 0) == truth)
    assert right["raw"] < 0.65
    assert right["network"] > 0.85


def test_a_model_without_embedding_is_refused():
    pair = (lambda key, x: jnp.zeros((144, 3)), lambda p, x: x.reshape(len(x), -1) @ p)
    with pytest.raises(UserError, match="__call__ takes `embed`"):
        embeddings.make("network", jax.random.key(0), PICTURES, LABELS, pair, [], 6)
