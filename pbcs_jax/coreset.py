"""`select_coreset`: from arrays and a model to the indices of a coreset, in one call."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pbcs_jax import masks, selection
from pbcs_jax.errors import UserError
from pbcs_jax.inner import Inner
from pbcs_jax.losses import LossFn
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import network_objective
from pbcs_jax.settings import Settings


def select_coreset(
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    *,
    inner: Inner = Inner(),  # noqa: B008 (frozen)
    loss_fn: str | LossFn = "cross_entropy",
    outer_loss: str | LossFn = "cross_entropy",
    outer_batch: int = 0,
    path_steps: int = 1,
    mask_chunk: int = 0,
    outer_chunk: int = 0,
    mesh: Mesh | None = None,
    state: selection.State | None = None,
    callback: Callable[[selection.State, list[selection.Metrics]], None] | None = None,
    callback_every: int = 10,
    **options: Any,
) -> selection.Result:
    """Learns which `size` of the n candidates to train `model` on.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]` candidates.
      y: `[n]` integer classes, or `[n, ...]` regression targets with `loss_fn='squared_error'`.
      model: a flax.linen module, or a pair of pure functions `(init(key, x), apply(params, x))`.
      size: K.
      validation: `(x, y)`, clean held-out data for the outer loss; the candidates themselves if
        None.
      inner: how each network is trained.
      loss_fn: training loss, a name or a function `(outputs, targets) -> [B]`.
      outer_loss: what the selection minimises, a name ('cross_entropy', 'brier', 'error_rate',
        'squared_error') or any function of (outputs, targets).
      outer_batch: random outer examples a step; 0 is all of them.
      path_steps: last training steps that 'gumbel' and 'hybrid' differentiate through.
      mask_chunk: networks that a device trains side by side; 0 chooses, see `memory.plan`.
      outer_chunk: outer examples that go through a network at once; 0 chooses.
      mesh: devices to spread the masks over, see `mask_mesh`; all of them if None.
      state: where an earlier run with the same arguments got to (its callback saw it); None starts
        anew.
      callback: see `run`.
      callback_every: see `run`.
      **options: of the outer loop, the fields of `Settings`: `num_masks`, `outer_steps`,
        `estimator`, ...

    Returns:
      `Result(indices, probabilities, history)`.

    >>> from pbcs_jax.nets import MLP
    >>> x = jax.random.normal(jax.random.key(0), (40, 5))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> model, inner = MLP(num_classes=2, hidden=(8,)), Inner(steps=5)
    >>> result = select_coreset(jax.random.key(1), x, y, model, 6, inner=inner, outer_steps=2)
    >>> result.indices.shape, result.probabilities.shape, result.history["outer_loss"].shape
    ((6,), (40,), (2,))
    """
    known = [field.name for field in dataclasses.fields(Settings)]
    for name in options:
        if name not in known:
            raise UserError(f"option {name!r} is unknown: use one of {', '.join(known)}")
    settings = Settings(**options)
    _check_rows("x and y", x, y)
    if validation is not None:
        _check_rows("validation", *validation)
    n = len(x)
    selection.check_size(n, size)
    run_key, draw_key = jax.random.split(key)
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
    if state is None:
        state = selection.init(run_key, n, size, settings)
    state, history = selection.run(state, evaluate, settings, callback, callback_every)
    indices = selection.draw_coreset(draw_key, state.probabilities, size, settings.final)
    return selection.Result(indices, np.asarray(state.probabilities), history)


def _check_rows(name: str, x: jax.Array, y: jax.Array) -> None:
    if len(x) != len(y) or not len(x):
        raise UserError(
            f"{name} have {len(x)} and {len(y)} rows: they must be as many, and more than none"
        )
    if not bool(jnp.all(jnp.isfinite(jnp.asarray(x)))):
        raise UserError(f"{name}: the inputs hold NaN or inf; remove or replace those rows")
