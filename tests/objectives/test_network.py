"""Training on the chosen samples: the path gradient, outer losses, and the spread over devices."""

import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax import nets
from pbcs_jax.choices import Samples
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective

N, CAPACITY = 20, 20
X = jax.random.normal(jax.random.key(0), (N, 6))
Y = (X[:, 0] + X[:, 1] > 0).astype(jnp.int32)
OUTER = (jax.random.normal(jax.random.key(1), (15, 6)), jnp.arange(15) % 2)
MODEL = as_model(nets.MLP(num_classes=2, hidden=(8,)))
MASKS = pbcs.sample_masks(jax.random.key(2), jnp.full((N,), 0.4), 3)


ONE_DEVICE = {"mesh": pbcs.mask_mesh(jax.devices()[:1])}


def objective(levels=(CAPACITY,), validation=None, path_steps=0, compute=ONE_DEVICE, **settings):
    network = Network(**{"inner": Inner(steps=6), "path_steps": path_steps, **settings})
    return network_objective(
        MODEL,
        X,
        Y,
        Samples(levels),
        network,
        validation=validation,
        path=path_steps > 0,
        compute=Compute(**compute),
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("path_steps", [1, 3])
def test_path_gradient_is_the_derivative_of_the_last_steps(optimizer, path_steps):
    """Against the gradient of training written out by hand, for all candidates."""
    inner = Inner(steps=6, optimizer=optimizer, learning_rate=0.1, schedule="constant")
    key = jax.random.key(3)
    evaluate = objective(inner=inner, validation=OUTER, path_steps=path_steps)
    found = np.asarray(jax.jit(evaluate)(key, MASKS).path_gradients)

    optimizer = inner.transformation()
    init_key = jax.random.split(key, 4)[1]
    variables = MODEL.init(init_key, X[:1])

    def outer_loss(tail_weights, mask):
        params = variables["params"]
        opt_state = optimizer.init(params)
        for step in range(6):
            w = tail_weights if step >= 6 - path_steps else mask
            mean = lambda p, w=w: (  # noqa: E731
                w @ losses.cross_entropy(MODEL.apply({"params": p, "state": {}}, X)[0], Y) / w.sum()
            )
            updates, opt_state = optimizer.update(jax.grad(mean)(params), opt_state, params)
            params = jax.tree.map(jnp.add, params, updates)
        outputs = MODEL.apply({"params": params, "state": {}}, OUTER[0])[0]
        return losses.cross_entropy(outputs, OUTER[1]).mean()

    exact = jax.jit(jax.vmap(jax.grad(outer_loss)))(MASKS, MASKS)
    np.testing.assert_allclose(found, exact, atol=2e-3 * np.abs(exact).max())
    assert np.abs(found[MASKS == 0]).max() > 0  # candidates that were not chosen have one too


def test_the_outer_data_are_the_candidates_unless_others_are_given():
    own = jax.jit(objective())(jax.random.key(3), MASKS).losses
    same = jax.jit(objective(validation=(X, Y)))(jax.random.key(3), MASKS).losses
    other = jax.jit(objective(validation=OUTER))(jax.random.key(3), MASKS).losses
    np.testing.assert_allclose(own, same, rtol=1e-6)
    assert np.abs(np.asarray(own - other)).min() > 1e-4


def test_outer_mini_batches_are_right_in_the_mean_and_shared_by_the_masks():
    evaluate = jax.jit(objective(outer_batch=5, inner=Inner(steps=0)))
    inner = jax.jit(objective(inner=Inner(steps=0)))
    keys = jax.random.split(jax.random.key(3), 400)
    batch = np.array([evaluate(k, MASKS).losses for k in keys])
    whole = np.array([inner(k, MASKS).losses for k in keys])
    error = (batch - whole)[:, 0]
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(400) and error.std() > 1e-3
    np.testing.assert_allclose(batch[:, 0], batch[:, 1], rtol=1e-6)  # untrained: the same data


@pytest.mark.parametrize(
    "outer_loss",
    [
        "cross_entropy",
        "brier",
        "error_rate",
        lambda outputs, targets: (outputs.argmax(-1) != targets).astype(float).max(),  # a scalar
    ],
)
def test_any_function_of_outputs_and_targets_is_an_outer_loss(outer_loss):
    key = jax.random.key(3)
    found = jax.jit(objective(outer_loss=outer_loss, validation=OUTER))(key, MASKS).losses
    init_key, train_key = (jax.random.split(key, 4)[i] for i in (1, 3))
    variables = MODEL.init(init_key, X[:1])
    for mask, value in zip(MASKS, found, strict=True):
        chosen = np.flatnonzero(mask)
        coreset = Coreset(X[chosen], Y[chosen], jnp.ones(len(chosen)))
        trained = train(MODEL, losses.cross_entropy, Inner(steps=6), train_key, variables, coreset)
        outputs = MODEL.apply(trained.variables, OUTER[0])[0]
        expected = jnp.mean(losses.get(outer_loss)(outputs, OUTER[1]))
        assert float(value) == pytest.approx(float(expected), rel=1e-4)


def test_fresh_initialisations_differ_and_shared_ones_do_not():
    alike = jnp.tile(MASKS[:1], (3, 1))
    shared = jax.jit(objective())(jax.random.key(3), alike).losses
    fresh = jax.jit(objective(inner=Inner(steps=6, shared_init=False)))(jax.random.key(3), alike)
    assert np.ptp(shared) < 1e-6
    assert np.ptp(fresh.losses) > 1e-4


def test_overflow_leaves_training_and_mask():
    full = jnp.ones((1, N))
    small = jax.jit(objective(levels=(8,)))(jax.random.key(3), full)
    first = jax.jit(objective())(jax.random.key(3), (jnp.arange(N) < 8).astype(jnp.float32)[None])
    np.testing.assert_allclose(small.losses, first.losses, rtol=1e-5)
    np.testing.assert_array_equal(small.masks, first.masks)


def test_the_smallest_capacity_with_room_for_all_masks_is_used():
    """The rows that are trained on are seen by a model that counts them."""
    seen = []

    def apply(params, x):
        jax.debug.callback(lambda x: seen.append(x.shape[0]), x)
        return x[:, :2] * params

    counting = as_model((lambda key, x: jnp.ones(()), apply))
    few, many = ((jnp.arange(N) < count).astype(jnp.float32)[None] for count in (4, 9))
    evaluate = network_objective(
        counting,
        X,
        Y,
        Samples((5, 12, N)),
        Network(Inner(steps=1)),
        validation=OUTER,
        compute=Compute(**ONE_DEVICE),
    )
    for drawn, rows in [(few, 5), (many, 12), (jnp.concatenate([few, many]), 12)]:
        seen.clear()
        jax.block_until_ready(jax.jit(evaluate)(jax.random.key(3), drawn))
        jax.effects_barrier()
        assert set(seen) - {len(OUTER[1])} == {rows}
    together = jax.jit(objective(levels=(5, 12, N)))(jax.random.key(3), many)
    np.testing.assert_allclose(
        together.losses, jax.jit(objective())(jax.random.key(3), many).losses, rtol=1e-5
    )


def test_diverged_models_are_marked():
    wild = Inner(steps=30, learning_rate=1e6, schedule="constant")
    assert not jax.jit(objective(inner=wild))(jax.random.key(3), MASKS).ok.any()


def test_chunks_change_nothing():
    square = lambda rows: rows**2  # noqa: E731
    for n, chunk in [(10, 3), (10, 5), (10, 100), (7, 6)]:
        rows = jnp.arange(n * 2.0).reshape(n, 2)
        np.testing.assert_array_equal(in_chunks(square, rows, chunk), rows**2)
    chunked, whole = (
        jax.jit(objective(compute={**ONE_DEVICE, "outer_chunk": c}, path_steps=1))(
            jax.random.key(3), MASKS
        )
        for c in (6, 99)
    )
    np.testing.assert_allclose(chunked.losses, whole.losses, rtol=1e-5)
    np.testing.assert_allclose(chunked.path_gradients, whole.path_gradients, atol=1e-6)


@pytest.mark.parametrize("mask_chunk", [1, 2, 3])
def test_one_mask_after_another_or_side_by_side(mask_chunk):
    chunked, default = (
        jax.jit(objective(compute={**ONE_DEVICE, "mask_chunk": c}, path_steps=1))(
            jax.random.key(3), MASKS
        )
        for c in (mask_chunk, 0)
    )
    np.testing.assert_allclose(chunked.losses, default.losses, rtol=1e-5)
    np.testing.assert_allclose(chunked.path_gradients, default.path_gradients, atol=1e-5)


def test_a_loss_without_gradient_is_refused_where_one_is_needed():
    with pytest.raises(UserError, match="error_rate"):
        objective(outer_loss="error_rate", path_steps=1)
    with pytest.raises(UserError, match="path_steps"):
        objective(path_steps=7)


@pytest.mark.parametrize("estimator", ["pge", "hybrid"])
def test_any_number_of_devices_gives_the_same_probabilities(estimator):
    """One, two, three and eight devices; five masks divide by none of the last three."""
    found = []
    for count in (1, 2, 3, 8):
        result = pbcs.select_coreset(
            jax.random.key(4),
            X,
            Y,
            nets.MLP(num_classes=2, hidden=(8,)),
            5,
            objective=Network(Inner(steps=5)),
            outer_steps=6,
            num_masks=5,
            estimator=estimator,
            compute=Compute(pbcs.mask_mesh(jax.devices()[:count])),
        )
        found.append(result.probabilities)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)
    assert np.ptp(found[0]) > 0.1  # they did move


@pytest.mark.parametrize("count", [1, 4])
def test_a_step_is_compiled_once(count, caplog):
    evaluate = objective(compute={"mesh": pbcs.mask_mesh(jax.devices()[:count])})
    settings = pbcs.Settings(num_masks=4, outer_steps=5)
    state = pbcs.init(jax.random.key(0), N, 5, settings)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        pbcs.run(state, evaluate, settings)
        for _ in range(4):
            state, _ = pbcs.step(state, evaluate, settings)
    compiled = [r for r in caplog.messages if "Finished XLA compilation of jit(_step)" in r]
    assert len(compiled) == 2  # one for `run`, which donates its buffers, and one for `step`


def test_masks_are_really_spread_over_the_devices():
    mesh = pbcs.mask_mesh(jax.devices()[:4])
    evaluate = jax.jit(objective(compute={"mesh": mesh, "mask_chunk": 2}))
    masks = pbcs.sample_masks(jax.random.key(2), jnp.full((N,), 0.4), 8)
    text = evaluate.lower(jax.random.key(3), masks).compile().as_text()
    assert "num_partitions=4" in text
    assert f"f32[2,{CAPACITY},6]" in text  # each device trains two of the eight


def test_packing_into_one_of_several_capacities_sorts_no_candidates():
    """A sort of all of them took nine tenths of a step with a million."""
    n, levels = 3000, (16, 24, 32)
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    evaluate = pbcs.network_objective(
        *(pbcs.nets.as_model(pbcs.nets.MLP(3, (4,))), x, np.arange(n) % 3, pbcs.Samples(levels)),
        pbcs.Network(pbcs.Inner(steps=2)),
        validation=(x[:5], np.arange(5) % 3),
        compute=Compute(**ONE_DEVICE),
    )
    masks = jnp.zeros((4, n)).at[:, :9].set(1.0)
    program = jax.jit(evaluate).lower(jax.random.key(0), masks).compile().as_text()
    assert not re.findall(rf"\[4,{n}\]\S* sort\(| sort\(.*\[4,{n}\]", program)


def test_estimator_auto_is_what_the_objective_names():
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    model, inner = nets.MLP(num_classes=3, hidden=(4,)), Inner(steps=2)
    options = {"num_masks": 2, "outer_steps": 1, "inner": inner, "objective": "network"}
    auto, named = (
        pbcs.select_coreset(0, x, y, model, 5, estimator=name, **options).probabilities
        for name in ("auto", "gumbel")
    )
    np.testing.assert_array_equal(auto, named)
    assert Network(outer_loss="error_rate").best_estimator(of_inputs=False) == "exact_k"
    assert Network().best_estimator(of_inputs=True) == "exact_k"
