"""The inner loop: invisible padding, optimisers, batches, early stop, divergence."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pbcs_jax as pbcs
from pbcs_jax import nets
from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, Inner, train
from pbcs_jax.nets.model import as_model

NETS = {
    "mlp": (nets.MLP(num_classes=3, hidden=(16,)), (6, 6, 1)),
    "mlp_dropout": (nets.MLP(num_classes=3, hidden=(16,), dropout=0.3), (6, 6, 1)),
    "convnet": (nets.ConvNet(num_classes=3, width=4), (16, 16, 1)),
    "convnet_dropout": (nets.ConvNet(num_classes=3, width=4, dropout=0.5), (16, 16, 1)),
    # Small, to compile fast; tests/nets has ResNet-18 and ResNet-32, batch statistics included.
    "resnet": (nets.ResNet(num_classes=3, width=4, stages=(1, 1)), (8, 8, 3)),
}


def make_coreset(shape, used, capacity, key=0):
    """`used` real rows, then garbage with weight 0."""
    x = jax.random.normal(jax.random.key(key), (used, *shape))
    y = jnp.arange(used) % 3
    fill = capacity - used
    return Coreset(
        jnp.concatenate([x, jnp.full((fill, *shape), 100.0)]),
        jnp.concatenate([y, jnp.full((fill,), 2)]),
        (jnp.arange(capacity) < used).astype(jnp.float32),
    )


def fit(net, coreset, settings, loss_fn=losses.cross_entropy):
    model = as_model(net)
    variables = model.init(jax.random.key(1), coreset.x[:1])
    run = jax.jit(lambda c: train(model, loss_fn, settings, jax.random.key(2), variables, c))
    return run(coreset)


@pytest.mark.parametrize("batch_size", [0, 4])
@pytest.mark.parametrize("name", NETS)
def test_padding_is_invisible(name, batch_size):
    """The same coreset at two capacities trains to the same weights and batch statistics."""
    net, shape = NETS[name]
    settings = Inner(steps=3, learning_rate=0.02, batch_size=batch_size)
    tight, loose = (fit(net, make_coreset(shape, 9, c), settings) for c in (9, 14))
    assert tight.ok and loose.ok
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4, rtol=2e-3),
        tight.variables,
        loose.variables,
    )
    assert float(tight.loss) == pytest.approx(float(loose.loss), rel=1e-3)


def test_full_batch_training_is_plain_gradient_descent():
    """Against a loop written out by hand."""
    net, shape = NETS["mlp"]
    coreset = make_coreset(shape, 9, 12)
    trained = fit(net, coreset, Inner(steps=5, schedule="constant"))
    params = net.init(jax.random.key(1), coreset.x[:1])["params"]
    velocity = jax.tree.map(jnp.zeros_like, params)

    def mean(params):
        outputs = net.apply({"params": params}, coreset.x[:9])
        return losses.cross_entropy(outputs, coreset.y[:9]).mean()

    for _ in range(5):
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, jax.grad(mean)(params))
        params = jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        trained.variables["params"],
        params,
    )


@pytest.mark.parametrize(
    "settings",
    [
        Inner(steps=60),
        Inner(steps=60, optimizer="adam", learning_rate=0.01),
        Inner(steps=60, optimizer=optax.rmsprop(0.003)),
        Inner(steps=60, batch_size=5, learning_rate=0.05),
        Inner(steps=60, schedule="constant", weight_decay=1e-3),
    ],
)
def test_every_optimiser_fits_the_coreset(settings):
    net, shape = NETS["mlp"]
    trained = fit(net, make_coreset(shape, 12, 16), settings)
    assert trained.ok and trained.loss < 0.1 and trained.steps == 60


def test_an_epoch_of_mini_batches_sees_every_row_once():
    """With a constant gradient a row, the sum over an epoch shows which rows were seen."""
    coreset = make_coreset((7,), 7, 11)._replace(x=jnp.eye(11)[:, :7] * 1.0)
    model = as_model((lambda key, x: jnp.zeros(7), lambda params, x: x @ params))
    settings = Inner(
        steps=3, batch_size=3, learning_rate=1.0, momentum=0, schedule="constant"
    )  # batches of 3, 3 and 1 rows
    trained = train(
        model,
        lambda outputs, targets: outputs,
        settings,
        jax.random.key(0),
        model.init(jax.random.key(0), coreset.x[:1]),
        coreset,
    )
    moved = -np.asarray(jax.tree.leaves(trained.variables["params"])[0])
    np.testing.assert_allclose(np.sort(moved), [1 / 3] * 6 + [1], atol=1e-6)


def test_it_stops_when_converged():
    net, shape = NETS["mlp"]
    coreset = make_coreset(shape, 9, 9)
    whole = fit(net, coreset, Inner(steps=400, schedule="constant"))
    early = fit(net, coreset, Inner(steps=400, schedule="constant", tolerance=0.05))
    assert whole.steps == 400 and 5 < early.steps < 200
    # Side by side, each model stops for itself.
    model = as_model(net)
    variables = model.init(jax.random.key(1), coreset.x[:1])
    both = jax.vmap(
        lambda c: train(
            model,
            losses.cross_entropy,
            Inner(steps=400, schedule="constant", tolerance=0.05),
            jax.random.key(2),
            variables,
            c,
        )
    )(jax.tree.map(lambda a, b: jnp.stack([a, b]), coreset, make_coreset(shape, 3, 9)))
    assert both.steps[0] == early.steps and both.steps[1] < early.steps


def test_divergence_and_nan_are_not_ok():
    net, shape = NETS["mlp"]
    coreset = make_coreset(shape, 9, 9)
    wild = Inner(steps=30, learning_rate=1e4, schedule="constant")
    assert not fit(net, coreset, wild).ok
    assert not fit(net, coreset._replace(x=coreset.x.at[0].set(jnp.nan)), Inner(steps=3)).ok
    # Finite, but worse than before training: the error of 1 is doubled by every step.
    line = (lambda key, x: jnp.zeros(1), lambda params, x: x @ params)
    ones = Coreset(jnp.ones((2, 1)), jnp.ones(2), jnp.ones(2))
    away = fit(
        line,
        ones,
        Inner(steps=3, learning_rate=1.5, momentum=0.0, schedule="constant"),
        losses.squared_error,
    )
    assert not away.ok and 4 < away.loss < 100


def test_an_empty_coreset_leaves_the_model_untrained():
    net, shape = NETS["mlp"]
    empty = make_coreset(shape, 9, 9)._replace(weights=jnp.zeros(9))
    trained = fit(net, empty, Inner(steps=3))
    fresh = as_model(net).init(jax.random.key(1), empty.x[:1])
    jax.tree.map(np.testing.assert_array_equal, trained.variables, fresh)


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": -1},
        {"batch_size": -5},
        {"momentum": 1.0},
        {"optimizer": "lion"},
        {"schedule": "linear"},
        {"learning_rate": 0.0},
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(UserError):
        Inner(**bad)


@pytest.mark.parametrize("name", ["mlp", "convnet", "resnet"])
def test_bfloat16_trains_float32_masters_to_nearly_the_same_loss(name):
    net, shape = NETS[name]
    options = {"steps": 20, "optimizer": "adam", "learning_rate": 0.01}
    plain, short = (
        fit(net, make_coreset(shape, 9, 12), Inner(dtype=dtype, **options))
        for dtype in ("float32", "bfloat16")
    )
    assert short.ok and {leaf.dtype.name for leaf in jax.tree.leaves(short.variables)} == {
        "float32"
    }
    assert float(plain.loss) < 0.8 and abs(float(short.loss - plain.loss)) < 0.05
    # Steps of Adam of 1e-4 or less change a master, but would be rounded away in bfloat16.
    moved = [np.asarray(leaf) for leaf in jax.tree.leaves(short.variables["params"])]
    assert any((leaf != leaf.astype(jnp.bfloat16).astype(np.float32)).any() for leaf in moved)


def test_all_products_of_a_step_are_in_bfloat16():
    net, shape = NETS["mlp"]
    coreset, model = make_coreset(shape, 9, 12), as_model(net)
    variables = model.init(jax.random.key(1), coreset.x[:1])
    for dtype, other in (("bfloat16", "f32"), ("float32", "bf16")):
        settings = Inner(steps=2, optimizer="adam", dtype=dtype)
        given = losses.cross_entropy, settings, jax.random.key(2), variables, coreset
        text = jax.jit(lambda: train(model, *given)).lower().as_text()  # noqa: B023
        products = re.findall(r"stablehlo.dot_general.*-> tensor<\d+x\d+x(\w+)>", text)
        assert len(products) >= 3 and other not in products, products
    with pytest.raises(UserError, match=r"inner.dtype is 'float16': use one of float32, bfloat16"):
        Inner(dtype="float16")


def test_path_gradients_in_bfloat16_point_the_same_way():
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    y, masks = np.arange(40) % 3, np.random.default_rng(1).random((2, 40)) < 0.3

    def paths(dtype):
        inner = Inner(steps=10, optimizer="adam", learning_rate=0.01, dtype=dtype)
        evaluate = pbcs.network_objective(
            *(as_model(nets.MLP(3, (8,))), x, y, pbcs.Samples((24,))),
            pbcs.Network(inner),
            path=True,
        )
        return evaluate(jax.random.key(0), jnp.asarray(masks, jnp.float32)).path_gradients

    for one, other in zip(paths("float32"), paths("bfloat16"), strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.98
