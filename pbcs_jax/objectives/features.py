"""Features: train a network on the chosen inputs of all samples, and score it on the outer data."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute import plan as plan_lib
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.inner import train as train_lib
from pbcs_jax.nets.model import Model
from pbcs_jax.objectives.network import Objective, own_keys, score
from pbcs_jax.outer.estimators import Evaluation

OUTER_ON = ("all", "selected")


class _Data(NamedTuple):
    """What all masks see; `groups` has the shape of one sample."""

    x: jax.Array
    y: jax.Array
    outer: tuple[jax.Array, jax.Array]
    groups: jax.Array


def check_groups(groups: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The number of the group that each input belongs to; each its own where None is given.

    Args:
      groups: integers that broadcast to `shape`, from 0 to the number of groups less 1, or None.
      shape: of one sample.

    Returns:
      int32 array of `shape`.

    >>> check_groups(None, (2, 2)).tolist()
    [[0, 1], [2, 3]]
    >>> check_groups([0, 0, 1], (3,)).tolist()
    [0, 0, 1]
    """
    if groups is None:
        return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    given = np.asarray(groups)
    if not np.issubdtype(given.dtype, np.integer):
        raise UserError(f"groups are of type {given.dtype}: give the number of each input's group")
    try:
        full = np.broadcast_to(given, shape)
    except ValueError as error:
        raise UserError(
            f"groups have shape {given.shape}: it must be that of a sample, {shape}"
        ) from error
    numbers = np.unique(full)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise UserError(
            f"groups run from {numbers[0]} to {numbers[-1]} with {len(numbers)} in use: number "
            "them from 0 without gaps"
        )
    return full.astype(np.int32)


def features_objective(
    model: Model,
    x: jax.Array,
    y: jax.Array,
    *,
    inner: train_lib.Inner,
    groups: Any = None,
    validation: tuple[jax.Array, jax.Array] | None = None,
    loss_fn: str | losses.LossFn = "cross_entropy",
    outer_loss: str | losses.LossFn = "cross_entropy",
    outer_on: str = "all",
    path_steps: int = 0,
    mask_chunk: int = 0,
    outer_chunk: int = 0,
    num_masks: int = 8,
    mesh: Mesh | None = None,
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` over n groups of inputs.

    Each mask's network is trained on all samples, with the inputs of groups not chosen set to 0.

    Args:
      model: see `nets.model.as_model`.
      x: `[N, ...]` samples, normalised, so that 0 is nothing special.
      y: `[N, ...]` their targets.
      inner: how each network is trained.
      groups: see `check_groups`.
      validation: `(x, y)`, held-out outer data; the samples themselves if None.
      loss_fn: training loss, one value an example.
      outer_loss: any function of (outputs, targets), a scalar or one value an example.
      outer_on: the outer loss is taken with 'all' inputs, as published, or with the 'selected'.
      path_steps: dL/dm is taken through this many last training steps; 0 for none.
      mask_chunk: networks that a device trains side by side; 0 chooses, see `compute.plan`.
      outer_chunk: outer examples that go through the network at once; 0 chooses.
      num_masks: M, for that choice.
      mesh: the devices to spread the masks over; all of them if None.
    """
    loss_fn, outer_loss = losses.get(loss_fn), losses.get(outer_loss)
    if outer_on not in OUTER_ON:
        raise UserError(f"outer_on {outer_on!r} is unknown: use one of {', '.join(OUTER_ON)}")
    if path_steps:
        losses.check_gradient(outer_loss)
    x, y = jnp.asarray(x), jnp.asarray(y)
    numbers = jnp.asarray(check_groups(groups, x.shape[1:]))
    mesh = mesh or mesh_lib.mask_mesh()
    plan = plan_lib.plan(
        model,
        x,
        rows=inner.batch_size or len(x),
        num_masks=-(-num_masks // mesh.size),
        device=mesh.devices.flat[0],
        path_steps=path_steps,
        mask_chunk=mask_chunk,
        outer_chunk=outer_chunk,
    )
    outer = (x, y) if validation is None else tuple(map(jnp.asarray, validation))
    data = mesh_lib.replicate(_Data(x, y, outer, numbers), mesh)

    def outputs_of(variables, inputs):
        return in_chunks(lambda rows: model.apply(variables, rows)[0], inputs, plan.outer_chunk)

    def outer_of(variables, data, mask):
        outer_x, outer_y = data.outer
        seen = outer_x * mask[data.groups] if outer_on == "selected" else outer_x
        return score(outer_loss, outputs_of(variables, seen), outer_y)

    def evaluate_one(shared, mapped):
        data, init_key = shared
        mask, own_init_key, train_key = mapped
        variables = model.init(init_key if inner.shared_init else own_init_key, data.x[:1])
        coreset = train_lib.Coreset(data.x * mask[data.groups], data.y, jnp.ones(len(data.x)))
        arguments = (model, loss_fn, inner, train_key, variables, coreset)
        if not path_steps:
            trained = train_lib.train(*arguments)
            return *outer_of(trained.variables, data, mask), trained.ok, None
        trained, (loss, metrics), tail = train_lib.train_and_differentiate(
            *arguments, lambda variables: outer_of(variables, data, mask), path_steps
        )

        def change(mask):
            """What the outer loss changes by, to first order, when the mask does."""

            def step(total, one):
                variables, cotangent, _ = one

                def training_loss(params):
                    inputs = data.x * mask[data.groups]
                    outputs = outputs_of({**variables, "params": params}, inputs)
                    return jnp.mean(loss_fn(outputs, data.y))

                _, slope = jax.jvp(training_loss, (variables["params"],), (cotangent,))
                return total + slope, None

            through_training, _ = jax.lax.scan(step, 0.0, tail)
            return through_training + outer_of(trained.variables, data, mask)[0]

        return loss, metrics, trained.ok, jax.grad(change)(mask)

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, plan.mask_chunk)

    def evaluate(data: _Data, key: jax.Array, masks: jax.Array) -> Evaluation:
        init_key, own_key, train_key = jax.random.split(key, 3)
        keys = own_keys(inner, own_key, train_key, len(masks))
        values, metrics, ok, paths = mapped_over_masks((data, init_key), (masks, *keys))
        return Evaluation(values, ok & jnp.isfinite(values), paths, metrics=metrics)

    return jax.tree_util.Partial(evaluate, data)
