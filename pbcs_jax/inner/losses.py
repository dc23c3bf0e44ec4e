"""Losses of (outputs, targets), one value per example; the caller takes the mean."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from pbcs_jax.errors import UserError, check_known

LossFn = Callable[[jax.Array, jax.Array], jax.Array]


def cross_entropy(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """`[B, C]` logits and `[B]` classes -> `[B]`."""
    return optax.losses.softmax_cross_entropy_with_integer_labels(outputs, targets)


def brier(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Squared distance of the softmax from the one-hot target: bounded, no one point rules."""
    target = jax.nn.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype)
    return jnp.sum((jax.nn.softmax(outputs) - target) ** 2, axis=-1)


def absolute_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Absolute distance of the softmax from the one-hot target, 2 (1 - p of the target's class).

    Its sum over all targets is the same whatever the outputs are, so that wrong labels, as long as
    each is rarer than the right one, leave its minimum where it is (Ghosh et al. 2017). Squared
    errors would rather have the odds of a wrong label in the outputs.
    """
    p = jax.nn.softmax(outputs)
    return 2 * (1 - jnp.take_along_axis(p, targets[:, None], axis=-1)[:, 0])


def error_rate(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """1 where the largest logit is not the target's; its gradient is 0 everywhere."""
    return (jnp.argmax(outputs, axis=-1) != targets).astype(outputs.dtype)


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Regression: `[B]` or `[B, d]` each -> `[B]`; outputs `[B, 1]` fit targets `[B]`."""
    outputs = outputs.reshape(targets.shape)
    return jnp.sum(((outputs - targets) ** 2).reshape(targets.shape[0], -1), axis=-1)


_LOSSES: dict[str, LossFn] = {
    "cross_entropy": cross_entropy,
    "brier": brier,
    "error_rate": error_rate,
    "squared_error": squared_error,
    "absolute_error": absolute_error,
}


def is_classes(y: jax.Array) -> bool:
    """Whether targets are integer classes and not numbers of a regression."""
    return bool(jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer))


def check(*names: str | LossFn) -> None:
    """Raises unless each is the name of a loss, 'auto', or a function."""
    for name in names:
        if not callable(name):
            check_known("loss", name, ("auto", *_LOSSES), ", or a function")


def pair(loss_fn: str | LossFn, outer_loss: str | LossFn, classes: bool) -> tuple[LossFn, LossFn]:
    """The training loss and the outer loss; 'auto' is what suits the targets.

    >>> pair("auto", "auto", classes=False)[1].__name__
    'squared_error'
    """
    suited = "cross_entropy" if classes else "squared_error"
    chosen = suited if loss_fn == "auto" else loss_fn
    outer = outer_loss
    if outer_loss == "auto":
        outer = suited if classes else chosen
    for what, loss in (("loss_fn", chosen), ("outer_loss", outer)):
        if not classes and loss in _LOSSES and loss != "squared_error":
            raise UserError(f"{what} is {loss!r}, which is for classes: use 'squared_error'")
        if classes and loss == "squared_error":
            raise UserError(
                f"{what} is 'squared_error' and targets are classes: use 'cross_entropy' or "
                "'brier', or loss_fn='squared_error' if they are numbers"
            )
    return get(chosen), get(outer)


def check_gradient(loss: LossFn) -> None:
    """Raises for a loss that path gradients cannot go through."""
    if loss is error_rate:
        raise UserError(
            "outer_loss is 'error_rate', which has no gradient: use 'brier', 'cross_entropy' or "
            "'squared_error', or the estimator 'pge'"
        )


def get(loss: str | LossFn) -> LossFn:
    """A loss by name; a function is given back as it is."""
    if callable(loss):
        return loss
    check_known("loss", loss, _LOSSES, ", or a function")
    return _LOSSES[loss]
