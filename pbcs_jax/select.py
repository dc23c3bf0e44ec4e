"""`select_coreset`: from arrays and a model to the indices of a coreset, in one call."""

import dataclasses
import logging
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
from pbcs_jax.objectives import embeddings
from pbcs_jax.objectives.exchange import exchange
from pbcs_jax.objectives.network import Objective, network_objective
from pbcs_jax.objectives.ridge import choose_ridge
from pbcs_jax.objectives.sample_kernel import (
    Kernel,
    default_settings,
    kernel_objective,
    like_validation,
)
from pbcs_jax.outer import draw, loop, masks
from pbcs_jax.outer.settings import Settings

OBJECTIVES = ("network", "kernel", "kernel_then_network")
_LOG = logging.getLogger(__name__)


def select_coreset(
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    *,
    objective: str = "network",
    kernel: Kernel = Kernel(),  # noqa: B008 (frozen)
    inner: Inner = Inner(),  # noqa: B008 (frozen)
    loss_fn: str | LossFn = "cross_entropy",
    outer_loss: str | LossFn = "cross_entropy",
    outer_batch: int = 0,
    path_steps: int = 1,
    mask_chunk: int = 0,
    outer_chunk: int = 0,
    mesh: Mesh | None = None,
    state: loop.State | None = None,
    callback: Callable[[loop.State, list[loop.Metrics]], None] | None = None,
    callback_every: int = 10,
    max_ratio: float = 0.0,
    **options: Any,
) -> loop.Result:
    """Learns which `size` of the n candidates to train `model` on.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]` candidates.
      y: `[n]` integer classes, or `[n, ...]` regression targets with `loss_fn='squared_error'`.
      model: a flax.linen module, or a pair of pure functions `(init(key, x), apply(params, x))`;
        None will do for the objective 'kernel'.
      size: K.
      validation: `(x, y)`, clean held-out data for the outer loss; the candidates themselves if
        None.
      objective: what a mask is judged by: 'network' trains `model` on it; 'kernel' solves ridge
        regression on fixed features, a hundred times faster; 'kernel_then_network' starts the
        network's search from what the kernel found.
      kernel: the settings of the last two.
      inner: how each network is trained.
      loss_fn: training loss, a name or a function `(outputs, targets) -> [B]`.
      outer_loss: what the selection by networks minimises, a name ('cross_entropy', 'brier',
        'error_rate', 'squared_error') or any function of (outputs, targets).
      outer_batch: random outer examples a step; 0 is all of them.
      path_steps: last training steps that 'gumbel' and 'hybrid' differentiate through.
      mask_chunk: networks that a device trains side by side; 0 chooses, see `memory.plan`.
      outer_chunk: outer examples that go through a network at once; 0 chooses.
      mesh: devices to spread the masks over, see `mask_mesh`; all of them if None.
      state: where an earlier run with the same arguments got to (its callback saw it); None starts
        anew.
      callback: see `run`; with 'kernel_then_network' it sees the network's steps.
      callback_every: see `run`.
      max_ratio: largest over smallest class of the coreset, at most, by label; 0 leaves it free.
        Where the smallest class has too few candidates for that, fewer than `size` are chosen.
      **options: of the outer loop, the fields of `Settings`: `num_masks`, `outer_steps`,
        `estimator`, ... With the objective 'kernel' they replace those of `kernel.settings`.

    Returns:
      `Result(indices, probabilities, history)`.

    >>> from pbcs_jax.nets import MLP
    >>> x = jax.random.normal(jax.random.key(0), (40, 5))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> model, inner = MLP(num_classes=2, hidden=(8,)), Inner(steps=5)
    >>> result = select_coreset(jax.random.key(1), x, y, model, 6, inner=inner, outer_steps=2)
    >>> result.indices.shape, result.probabilities.shape, result.history["outer_loss"].shape
    ((6,), (40,), (2,))
    >>> result = select_coreset(jax.random.key(1), x, y, None, 6, objective="kernel")
    >>> result.indices.shape
    (6,)
    """
    check_options(options)
    if objective not in OBJECTIVES:
        raise UserError(f"objective {objective!r} is unknown: use one of {', '.join(OBJECTIVES)}")
    if model is None and objective != "kernel":
        raise UserError(f"objective {objective!r} trains a network: give a model, or use 'kernel'")
    check_rows("x and y", x, y)
    if max_ratio and not (max_ratio >= 1 and jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer)):
        raise UserError(f"max_ratio is {max_ratio}: use 0, or at least 1 for integer classes")
    if kernel.exchanges and (max_ratio or kernel.candidate_weight):
        raise UserError(
            "kernel.exchanges know no max_ratio and no kernel.candidate_weight: "
            "set them, or the exchanges, to 0"
        )
    if validation is not None:
        check_rows("validation", *validation)
    n = len(x)
    loop.check_size(n, size)
    if max_ratio and (most := draw.balanced_size(np.asarray(y), max_ratio)) < size:
        _LOG.info(
            "max_ratio %g: %d samples are chosen in place of %d, for the smallest class has too "
            "few candidates",
            max_ratio,
            most,
            size,
        )
        size = most
    run_key, draw_key = jax.random.split(key)
    start = None
    if objective == "kernel":
        settings = dataclasses.replace(kernel.settings or default_settings(n), **options)
        evaluate, problem = _kernel(run_key, x, y, model, size, validation, kernel, settings, mesh)
    else:
        settings = Settings(**options)
        evaluate = network_objective(
            as_model(model),
            x,
            y,
            capacities=masks.capacities(n, settings.largest_size(n, size)),
            inner=inner,
            validation=validation,
            loss_fn=loss_fn,
            outer_loss=outer_loss,
            outer_batch=outer_batch,
            path_steps=path_steps if settings.gradient_estimator().needs_path else 0,
            mask_chunk=mask_chunk,
            outer_chunk=outer_chunk,
            num_masks=settings.num_masks,
            mesh=mesh,
        )
        if objective == "kernel_then_network" and state is None:
            proxy = select_coreset(
                key, x, y, model, size, validation, objective="kernel", kernel=kernel, mesh=mesh
            )
            start = (1 - kernel.soften) * proxy.probabilities + kernel.soften * size / n
    if state is None:
        state = loop.init(run_key, n, size, settings, start)
    state, history = loop.run(state, evaluate, settings, callback, callback_every)
    s, labels = state.probabilities, np.asarray(y)
    indices = draw.draw_coreset(draw_key, s, size, settings.final, labels, max_ratio)
    if objective == "kernel" and kernel.exchanges:
        indices = exchange(indices=indices, most=kernel.exchanges, **problem)
    return loop.Result(indices, np.asarray(s), history)


def _kernel(
    key, x, y, model, size, validation, kernel, settings, mesh
) -> tuple[Objective, dict[str, Any]]:
    """The kernel objective of these data, and what it is made of, for the exchanges."""
    feature_key, ridge_key = jax.random.split(key)
    n = len(x)
    given = kernel.features
    if isinstance(given, str):
        others, weights = [], None
        if validation is not None:
            others = [validation[0]]
            weights = like_validation(jnp.asarray(y), jnp.asarray(validation[1]))
        x = jnp.asarray(x)
        rows = embeddings.make(given, feature_key, x, y, model, others, size, weights)
    elif validation is None:
        rows = [embeddings.check(given, n)]
    elif isinstance(given, tuple) and len(given) == 2:
        rows = [embeddings.check(a, len(b)) for a, b in zip(given, (x, validation[0]), strict=True)]
    else:
        raise UserError("features: with validation data give a pair, (candidates', validation's)")
    rows = embeddings.normalise(*rows)
    outer = None if validation is None else (rows[1], validation[1])
    ridge = kernel.ridge or choose_ridge(ridge_key, rows[0], y, size, outer)
    problem = {
        "features": rows[0],
        "y": y,
        "ridge": ridge,
        "validation": outer,
    }
    evaluate = kernel_objective(
        **problem,
        candidate_weight=kernel.candidate_weight,
        candidate_loss=kernel.candidate_loss,
        capacity=max(masks.capacities(n, settings.largest_size(n, size))),
        outer_loss=kernel.outer_loss,
        path=settings.gradient_estimator().needs_path,
        mesh=mesh,
    )
    # The objective has the features already: a second copy would be gigabytes for many candidates.
    return evaluate, problem if kernel.exchanges else {}


def check_options(options: dict[str, Any]) -> None:
    """Raises for what is no field of `Settings`."""
    known = [field.name for field in dataclasses.fields(Settings)]
    for name in options:
        if name not in known:
            raise UserError(f"option {name!r} is unknown: use one of {', '.join(known)}")


def check_rows(name: str, x: jax.Array, y: jax.Array) -> None:
    """Raises unless there are as many inputs as targets, all finite."""
    if len(x) != len(y) or not len(x):
        raise UserError(
            f"{name} have {len(x)} and {len(y)} rows: they must be as many, and more than none"
        )
    if not bool(jnp.all(jnp.isfinite(jnp.asarray(x)))):
        raise UserError(f"{name}: the inputs hold NaN or inf; remove or replace those rows")
