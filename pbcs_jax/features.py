"""`select_features`: from arrays and a model to the inputs worth keeping, in one call."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pbcs_jax.errors import UserError
from pbcs_jax.inner.losses import LossFn
from pbcs_jax.inner.train import Inner
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives import input_kernel
from pbcs_jax.objectives.feature_exchange import exchange_features
from pbcs_jax.objectives.features import check_groups, features_objective
from pbcs_jax.objectives.input_kernel import FeatureKernel
from pbcs_jax.objectives.network import Objective
from pbcs_jax.outer import draw, loop
from pbcs_jax.outer.estimators import smoothed
from pbcs_jax.outer.settings import Settings
from pbcs_jax.select import check_options, check_rows

OBJECTIVES = ("network", "kernel")

KERNEL_SETTINGS = Settings(
    num_masks=8, outer_steps=150, learning_rate=0.1, estimator="hybrid", path_until=0.5
)
"""The outer loop's for the objective 'kernel', where its `options` say nothing else."""


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
    objective: str = "network",
    kernel: FeatureKernel = FeatureKernel(),  # noqa: B008 (frozen)
    inner: Inner = Inner(),  # noqa: B008 (frozen)
    loss_fn: str | LossFn = "cross_entropy",
    outer_loss: str | LossFn = "cross_entropy",
    outer_on: str = "all",
    path_steps: int = 1,
    mask_chunk: int = 0,
    outer_chunk: int = 0,
    mesh: Mesh | None = None,
    state: loop.State | None = None,
    callback: Callable[[loop.State, list[loop.Metrics]], None] | None = None,
    callback_every: int = 10,
    **options: Any,
) -> loop.Result:
    """Learns which `size` inputs (or groups of inputs) of the samples to train `model` on.

    Args:
      key: PRNG key, consumed.
      x: `[N, ...]` samples, of any shape, each input of about the same scale.
      y: `[N]` integer classes, or `[N, ...]` regression targets with `loss_fn='squared_error'`.
      model: as in `select_coreset`; None will do for the objective 'kernel'.
      size: K, inputs to choose; with `groups`, groups.
      validation: `(x, y)`, held-out data for the outer loss. Without them 'network' takes the
        samples themselves, 'kernel' leave-one-out.
      groups: the number of each input's group, integers from 0 that broadcast to the shape of a
        sample: patches, one-hot blocks, sensors. Each input is a group of its own if None.
      smooth: of pictures `[N, height, width, ...]`: what is learnt of an input is learnt of its
        neighbours too, by a Gaussian with this standard deviation, in pixels. Where inputs are
        noisy and many are chosen, neighbours know more together; else it is better at 0.
      objective: what a mask is judged by: 'network' trains `model` on the chosen inputs; 'kernel'
        solves kernel ridge regression on them, and judges by leave-one-out.
      kernel: the settings of the latter.
      inner: how each network is trained.
      loss_fn: training loss, a name or a function `(outputs, targets) -> [B]`.
      outer_loss: what the selection by networks minimises, see `select_coreset`.
      outer_on: networks are scored with 'all' inputs, or with the 'selected' ones only.
      path_steps: last training steps that 'gumbel' and 'hybrid' differentiate through.
      mask_chunk: networks that a device trains side by side; 0 chooses.
      outer_chunk: outer examples that go through a network at once; 0 chooses.
      mesh: devices to spread the masks over; all of them if None.
      state: where an earlier run with the same arguments got to; None starts anew.
      callback: see `run`.
      callback_every: see `run`.
      **options: of the outer loop, the fields of `Settings`.

    Returns:
      `Result(indices, probabilities, history)`, of the groups.

    >>> x = jax.random.normal(jax.random.key(0), (60, 8))
    >>> y = (x[:, 2] + x[:, 5] > 0).astype(int)
    >>> result = select_features(jax.random.key(1), x, y, None, 2, objective="kernel")
    >>> result.indices.tolist()
    [2, 5]
    """
    check_options(options)
    if objective not in OBJECTIVES:
        raise UserError(f"objective {objective!r} is unknown: use one of {', '.join(OBJECTIVES)}")
    if model is None and objective == "network":
        raise UserError("objective 'network' trains a network: give a model, or use 'kernel'")
    check_rows("x and y", x, y)
    if validation is not None:
        check_rows("validation", *validation)
    numbers = check_groups(groups, np.shape(x)[1:])
    n = int(numbers.max()) + 1
    loop.check_size(n, size)
    run_key, draw_key = jax.random.split(key)
    if objective == "kernel":
        settings = dataclasses.replace(KERNEL_SETTINGS, **options)
        make = _kernel(run_key, x, y, size, validation, numbers, kernel, mesh)
        evaluate = make(kernel.samples, path=settings.gradient_estimator().needs_path)
        if kernel.exchanges:
            exact, slopes = (make(kernel.exchange_samples, path=path) for path in (False, True))
    else:
        settings = Settings(**options)
        evaluate = features_objective(
            as_model(model),
            x,
            y,
            inner=inner,
            groups=numbers,
            validation=validation,
            loss_fn=loss_fn,
            outer_loss=outer_loss,
            outer_on=outer_on,
            path_steps=path_steps if settings.gradient_estimator().needs_path else 0,
            mask_chunk=mask_chunk,
            outer_chunk=outer_chunk,
            num_masks=settings.num_masks,
            mesh=mesh,
        )
    if smooth:
        estimator = smoothed(settings.gradient_estimator(), neighbourhood(numbers, smooth))
        settings = dataclasses.replace(settings, estimator=estimator)
    if state is None:
        state = loop.init(run_key, n, size, settings)
    state, history = loop.run(state, evaluate, settings, callback, callback_every)
    s = state.probabilities
    indices = draw.draw_coreset(draw_key, s, size, settings.final)
    if objective == "kernel" and kernel.exchanges:
        key = jax.random.fold_in(draw_key, 1)
        indices = exchange_features(key, exact, slopes, indices, n, kernel.exchanges)
    return loop.Result(indices, np.asarray(s), history)


def neighbourhood(groups: np.ndarray, width: float) -> Callable[[jax.Array], jax.Array]:
    """A function `[n] -> [n]` that gives each group of inputs the mean of those around it.

    Args:
      groups: `[height, width, ...]`, the number of each input's group, from `check_groups`.
      width: the standard deviation of a Gaussian, in pixels, over the first two axes.

    >>> smooth = neighbourhood(np.arange(4).reshape(1, 4), 0.5)
    >>> print(np.asarray(smooth(jnp.array([0.0, 1.0, 0.0, 0.0])), float).round(2))
    [0.12 0.79 0.11 0.  ]
    """
    if groups.ndim < 2 or width < 0:
        raise UserError(
            f"smooth is {width} and a sample has shape {groups.shape}: use at least 0, and 0 "
            "unless samples are pictures, of shape [height, width, ...]"
        )
    count = int(groups.max()) + 1
    sizes = np.bincount(groups.ravel())

    def weights(length):
        distances = np.subtract.outer(np.arange(length), np.arange(length))
        gaussian = np.exp(-(distances**2) / (2 * width**2))
        return jnp.asarray(gaussian / gaussian.sum(axis=1, keepdims=True), jnp.float32)

    rows, columns = (weights(length) for length in groups.shape[:2])

    def smooth(gradient):
        spread = jnp.einsum("ab,cd,bd...->ac...", rows, columns, (gradient / sizes)[groups])
        return jnp.zeros(count, gradient.dtype).at[groups].add(spread)

    return smooth


def _kernel(key, x, y, size, validation, groups, kernel, mesh) -> Callable[..., Objective]:
    """The closed-form objective of these data, by the number of samples and with slopes or not."""
    data = input_kernel.gather(x, y, groups)
    bandwidth, ridge = input_kernel.choose(
        key,
        data,
        size,
        kernel.samples,
        (kernel.bandwidth,) if kernel.bandwidth else input_kernel.BANDWIDTHS,
        (kernel.ridge,) if kernel.ridge else input_kernel.RIDGES,
    )
    held_out = None
    if validation is not None:
        held_out = input_kernel.gather(validation[0], validation[1], groups)

    def make(samples: int, path: bool) -> Objective:
        return input_kernel.feature_kernel_objective(
            data,
            bandwidth=bandwidth,
            ridge=ridge,
            samples=samples,
            shifts=kernel.shifts,
            picture=np.shape(x)[1:],
            validation=held_out,
            outer_loss=kernel.outer_loss,
            path=path,
            mesh=mesh,
        )

    return make
