"""Training in the span of the inputs against training in full: the same, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax import nets
from pbcs_jax.inner import losses, span
from pbcs_jax.inner.train import Coreset, Inner, train, train_and_differentiate
from pbcs_jax.nets.model import as_model

MODEL = as_model(nets.MLP(num_classes=3, hidden=(8,)))
FULL = MODEL._replace(input_kernel=None)
X = jax.random.normal(jax.random.key(0), (7, 5, 5, 1))
Y = jnp.arange(7) % 3


def coreset(kind):
    if kind == "padded":
        return Coreset(X, Y, jnp.array([1.0] * 5 + [0.0] * 2))
    if kind == "duplicates":  # the inputs do not have full rank
        return Coreset(jnp.concatenate([X[:3], X[:3], X[:1]]), Y, jnp.ones(7))
    return Coreset(jnp.where(kind == "zeros", 0.0, 1.0) * X, Y, jnp.ones(7))


def both(run):
    variables = MODEL.init(jax.random.key(1), X[:1])
    return run(MODEL, variables), run(FULL, variables)


def assert_close(a, b, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), a, b)


@pytest.mark.parametrize("kind", ["plain", "padded", "duplicates", "zeros"])
@pytest.mark.parametrize(
    "settings",
    [
        Inner(steps=12),
        Inner(steps=12, momentum=0.0),
        Inner(steps=12, batch_size=3),
        Inner(steps=12, tolerance=1e-6, schedule="constant"),
    ],
)
def test_the_same_weights(kind, settings):
    inside, full = both(
        lambda model, variables: train(
            model, losses.cross_entropy, settings, jax.random.key(2), variables, coreset(kind)
        )
    )
    assert_close(inside.variables, full.variables)
    assert float(inside.loss) == pytest.approx(float(full.loss), abs=1e-5)


def test_the_same_path_gradients():
    def run(model, variables):
        outer = lambda v: (jnp.sum(model.apply(v, X + 1)[0] ** 2), None)  # noqa: E731
        arguments = (losses.cross_entropy, Inner(steps=8), jax.random.key(2), variables)
        return train_and_differentiate(model, *arguments, coreset("padded"), outer, 3)

    inside, full = both(run)
    assert_close(inside[1:], full[1:], atol=1e-4)


def test_it_is_entered_only_where_it_is_exact_and_smaller():
    def program(model, settings, x):
        variables = model.init(jax.random.key(1), x[:1])
        run = lambda x: train(  # noqa: E731
            model,
            losses.cross_entropy,
            settings,
            jax.random.key(2),
            variables,
            Coreset(x, jnp.zeros(len(x), int), jnp.ones(len(x))),
        )
        return " qr[" in str(jax.make_jaxpr(run)(x))

    assert program(MODEL, Inner(steps=2), X)
    assert not program(FULL, Inner(steps=2), X)
    assert not program(MODEL, Inner(steps=2, optimizer="adam"), X)
    assert not program(MODEL, Inner(steps=2, weight_decay=0.1), X)
    assert not program(MODEL, Inner(steps=2), jnp.concatenate([X, X]))  # 14 rows, 25 inputs
    assert not span.is_smaller(as_model(nets.ConvNet()), X)
