"""`select_coreset` and `select_features`: from arrays to what is worth keeping, in one call."""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.choices import Choice, Inputs, Samples
from pbcs_jax.choices import inputs as inputs_lib
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError, check_known
from pbcs_jax.objectives import InputKernel, Kernel, Network
from pbcs_jax.outer import draw, loop, masks
from pbcs_jax.outer.estimators import smoothed
from pbcs_jax.outer.settings import Settings
from pbcs_jax.result import Result

SOFTEN = 0.3
"""How far 'kernel_then_network' moves what the kernel found towards K/n."""

Callback = Callable[[loop.State, list[loop.Metrics]], None]
Start = Any
"""Probabilities `[n]`, or a `State`, or None."""
_LOG = logging.getLogger(__name__)


def select_coreset(
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    *,
    objective: str | Network | Kernel = "network",
    max_ratio: float = 0.0,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
    start: Start = None,
    callback: Callback | None = None,
    **options: Any,
) -> Result:
    """Learns which `size` of the n candidates to train `model` on.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]` candidates.
      y: `[n]` integer classes, or `[n, ...]` regression targets with
        `objective=Network(loss_fn='squared_error', outer_loss='squared_error')`.
      model: a flax.linen module, `nets.from_nnx(...)` of an NNX one, or a pair of pure functions
        `(init(key, x), apply(params, x))`; None will do for the objective 'kernel'.
      size: K.
      validation: `(x, y)`, clean held-out data for the outer loss; the candidates themselves if
        None.
      objective: what masks are judged by. 'network' or `Network(...)` trains `model` on them;
        'kernel' or `Kernel(...)` solves ridge regression on fixed embeddings, a hundred times
        faster; 'kernel_then_network' selects by the kernel, and starts the network's search from
        those probabilities, moved by `SOFTEN` towards K/n.
      max_ratio: largest over smallest class of the coreset, at most, by label; 0 leaves it free.
        Where the smallest class has too few candidates for that, fewer than `size` are chosen.
      compute: devices and chunks.
      start: probabilities `[n]` to start from, in place of K/n; or the `State` that a callback of
        an earlier run with the same arguments saw, to continue from there.
      callback: called with the state and the metrics of the steps since its last call, every
        `compute.callback_every` outer steps.
      **options: of the outer loop, the fields of `Settings`: `num_masks`, `outer_steps`,
        `estimator`, ... What is not given depends on the objective (`loop_settings`).

    Returns:
      `Result(indices, probabilities, history)`.

    >>> from pbcs_jax import Inner
    >>> from pbcs_jax.nets import MLP
    >>> x = jax.random.normal(jax.random.key(0), (40, 5))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> model, network = MLP(num_classes=2, hidden=(8,)), Network(Inner(steps=5))
    >>> key = jax.random.key(1)
    >>> result = select_coreset(key, x, y, model, 6, objective=network, outer_steps=2)
    >>> result.indices.shape, result.probabilities.shape, result.history["outer_loss"].shape
    ((6,), (40,), (2,))
    >>> select_coreset(key, x, y, None, 6, objective="kernel").indices.shape
    (6,)
    """
    check_rows("x and y", x, y)
    n = len(x)
    loop.check_size(n, size)
    if max_ratio and not (max_ratio >= 1 and jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer)):
        raise UserError(f"max_ratio is {max_ratio}: use 0, or at least 1 for integer classes")
    if max_ratio and (most := draw.balanced_size(np.asarray(y), max_ratio)) < size:
        _LOG.info(
            "max_ratio is %g: %d samples are chosen in place of %d, because the smallest class has "
            "too few candidates",
            max_ratio,
            most,
            size,
        )
        size = most
    if objective == "kernel_then_network":
        _check_model(model)
        if not isinstance(start, loop.State):
            proxy = select_coreset(
                jax.random.fold_in(key, 1),
                x,
                y,
                model,
                size,
                validation,
                objective="kernel",
                compute=compute,
                start=start,
            )
            start = soften(proxy.probabilities, size)
        objective = "network"
    asked = _objective(objective, {"network": Network(), "kernel": Kernel()}, "kernel_then_network")
    if isinstance(asked, Kernel) and asked.exchanges and max_ratio:
        raise UserError(
            f"kernel.exchanges is {asked.exchanges} and max_ratio {max_ratio}: exchanges keep no "
            "bound on classes; set one of them to 0"
        )
    if isinstance(asked, Network) and asked.outer_on != "all":
        raise UserError(f"outer_on is {asked.outer_on!r}: it is for inputs; use 'all'")
    settings = _settings(asked, n, options)
    choice = Samples(masks.capacities(n, settings.largest_size(n, size)))
    data = (x, y, model, size, validation)
    classes = (np.asarray(y), max_ratio)
    return _select(key, data, choice, n, asked, settings, compute, start, callback, classes)


def select_features(
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    *,
    groups: Any = None,
    smooth: float = 0.0,
    objective: str | Network | InputKernel = "network",
    compute: Compute = Compute(),  # noqa: B008 (immutable)
    start: Start = None,
    callback: Callback | None = None,
    **options: Any,
) -> Result:
    """Learns which `size` inputs (or groups of inputs) of the samples to train `model` on.

    Args:
      key: PRNG key, consumed.
      x: `[N, ...]` samples, of any shape, each input of about the same scale.
      y: `[N]` integer classes, or `[N, ...]` regression targets.
      model: as in `select_coreset`; None will do for the objective 'kernel'.
      size: K, inputs to choose; with `groups`, groups.
      validation: `(x, y)`, held-out data for the outer loss. Without them 'network' takes the
        samples themselves, 'kernel' leave-one-out.
      groups: the number of each input's group, integers from 0 that broadcast to the shape of a
        sample: patches, one-hot blocks, sensors. Each input is a group of its own if None.
      smooth: of pictures `[N, height, width, ...]`: what is learnt of an input is learnt of its
        neighbours too, by a Gaussian with this standard deviation, in pixels. It helps where inputs
        are noisy and many are chosen; else 0 is better.
      objective: what masks are judged by. 'network' or `Network(...)` trains `model` on the chosen
        inputs; 'kernel' or `InputKernel(...)` solves kernel ridge regression on them, and judges by
        leave-one-out.
      compute: as in `select_coreset`.
      start: as in `select_coreset`.
      callback: as in `select_coreset`.
      **options: of the outer loop, the fields of `Settings`.

    Returns:
      `Result(indices, probabilities, history)`, of the groups.

    >>> x = jax.random.normal(jax.random.key(0), (60, 8))
    >>> y = (x[:, 2] + x[:, 5] > 0).astype(int)
    >>> result = select_features(jax.random.key(1), x, y, None, 2, objective="kernel")
    >>> result.indices.tolist()
    [2, 5]
    """
    check_rows("x and y", x, y)
    numbers = inputs_lib.numbers(groups, np.shape(x)[1:])
    n = int(numbers.max()) + 1
    loop.check_size(n, size)
    asked = _objective(objective, {"network": Network(), "kernel": InputKernel()})
    settings = _settings(asked, n, options)
    if smooth:
        near = inputs_lib.neighbourhood(numbers, smooth)
        estimator = smoothed(settings.gradient_estimator(), near)
        settings = dataclasses.replace(settings, estimator=estimator)
    data = (x, y, model, size, validation)
    return _select(key, data, Inputs(numbers), n, asked, settings, compute, start, callback)


def soften(probabilities: Any, size: float, amount: float = SOFTEN) -> np.ndarray:
    """Probabilities `[n]` moved by `amount` towards K/n, for another selection to start from.

    >>> soften([1.0, 0.0], 1, 0.5).tolist()
    [0.75, 0.25]
    """
    s = np.asarray(probabilities)
    return (1 - amount) * s + amount * size / len(s)


def _select(
    key: jax.Array,
    data: tuple[Any, Any, Any, int, Any],
    choice: Choice,
    n: int,
    objective: Any,
    settings: Settings,
    compute: Compute,
    start: Start,
    callback: Callback | None,
    classes: tuple[np.ndarray | None, float] = (None, 0.0),
) -> Result:
    """The outer loop over n things to choose from, and the choice that it ends in."""
    x, y, model, size, validation = data
    if isinstance(objective, Network):
        _check_model(model)
    if validation is not None:
        check_rows("validation", *validation)
    run_key, draw_key, build_key = jax.random.split(key, 3)
    evaluate, improve = objective.build(
        build_key, x, y, model, size, validation, choice, settings, compute
    )
    state = start if isinstance(start, loop.State) else loop.init(run_key, n, size, settings, start)
    state, history = loop.run(state, evaluate, settings, callback, compute.callback_every)
    s = state.probabilities
    indices = draw.draw_coreset(draw_key, s, size, settings.final, *classes)
    if improve is not None:
        indices = improve(jax.random.fold_in(draw_key, 1), indices)
    return Result(indices, np.asarray(s), history)


def _objective(given: Any, known: dict[str, Any], *more: str) -> Any:
    """The objective that a name stands for, or the one given."""
    if isinstance(given, str) and given in known:
        return known[given]
    if isinstance(given, tuple(map(type, known.values()))):
        return given
    kinds = " or ".join(type(value).__name__ for value in known.values())
    raise UserError(
        f"objective is {given!r}: use one of {', '.join([*known, *more])}, or a value of {kinds}"
    )


def _settings(objective: Any, n: int, options: dict[str, Any]) -> Settings:
    """The objective's own settings of the outer loop with the user's in their place."""
    for name in options:
        check_known("option", name, (field.name for field in dataclasses.fields(Settings)))
    return dataclasses.replace(objective.loop_settings(n), **options)


def _check_model(model: Any) -> None:
    if model is None:
        raise UserError("model is None: this objective trains one; give a model, or use 'kernel'")


def check_rows(name: str, x: jax.Array, y: jax.Array) -> None:
    """Raises unless there are as many inputs as targets, all finite."""
    if len(x) != len(y) or not len(x):
        raise UserError(
            f"{name} have {len(x)} and {len(y)} rows: they must be as many, and more than none"
        )
    if not bool(jnp.all(jnp.isfinite(jnp.asarray(x)))):
        raise UserError(f"{name} hold NaN or inf in the inputs: remove or replace those rows")
