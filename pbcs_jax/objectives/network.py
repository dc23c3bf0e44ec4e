"""Samples: train a network on the chosen candidates, and score it on the outer data."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute import plan as plan_lib
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.inner import train as train_lib
from pbcs_jax.nets.model import Model
from pbcs_jax.outer import masks
from pbcs_jax.outer.estimators import Evaluation

Objective = Callable[[jax.Array, jax.Array], Evaluation]


class _Data(NamedTuple):
    """What all masks see. `outer` is None where the candidates serve as outer data."""

    x: jax.Array
    y: jax.Array
    outer: tuple[jax.Array, jax.Array] | None


def network_objective(
    model: Model,
    x: jax.Array,
    y: jax.Array,
    *,
    capacities: Sequence[int],
    inner: train_lib.Inner,
    validation: tuple[jax.Array, jax.Array] | None = None,
    loss_fn: str | losses.LossFn = "cross_entropy",
    outer_loss: str | losses.LossFn = "cross_entropy",
    outer_batch: int = 0,
    outer_chunk: int = 0,
    path_steps: int = 0,
    mask_chunk: int = 0,
    num_masks: int = 8,
    mesh: Mesh | None = None,
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` that trains M networks side by side.

    Args:
      model: see `nets.model.as_model`.
      x: `[n, ...]` candidates.
      y: `[n, ...]` their targets.
      capacities: rows that a coreset is packed into: of these sizes the smallest that has room for
        all masks of a step, see `masks.capacities`.
      inner: how each network is trained.
      validation: `(x, y)`, held-out outer data; the candidates themselves if None.
      loss_fn: training loss, one value an example.
      outer_loss: any function of (outputs `[N, ...]`, targets `[N, ...]`), a scalar or one value an
        example. It need not be differentiable unless `path_steps` is above 0.
      outer_batch: the outer loss is taken on this many random outer examples a step; 0 is all of
        them.
      outer_chunk: outer examples that go through the network at once; 0 chooses.
      path_steps: dL/dm is taken through this many last training steps; 0 for none.
      mask_chunk: networks that a device trains side by side; 0 chooses, see `compute.plan`.
      num_masks: M, for that choice.
      mesh: the devices to spread the masks over; all of them if None.

    Returns:
      A pytree (`jax.tree_util.Partial`), so that the data are arguments of a compiled step and not
      constants inside it.
    """
    loss_fn = losses.get(loss_fn)
    outer_loss = losses.get(outer_loss)
    if path_steps:
        losses.check_gradient(outer_loss)
    if path_steps > max(inner.steps, 0):
        raise UserError(
            f"path_steps is {path_steps} but inner.steps is {inner.steps}: it cannot be more"
        )
    mesh = mesh or mesh_lib.mask_mesh()
    plan = plan_lib.plan(
        model,
        x,
        rows=inner.batch_size or max(capacities),
        num_masks=-(-num_masks // mesh.size),
        device=mesh.devices.flat[0],
        path_steps=path_steps,
        mask_chunk=mask_chunk,
        outer_chunk=outer_chunk,
    )
    data = mesh_lib.replicate(_Data(x, y, validation), mesh)

    def outputs_of(variables, inputs):
        return in_chunks(lambda rows: model.apply(variables, rows)[0], inputs, plan.outer_chunk)

    def outer_of(variables, outer_x, outer_y):
        return score(outer_loss, outputs_of(variables, outer_x), outer_y)

    def evaluate_one(shared, mapped):
        data, outer, init_key = shared
        indices, weights, mask, own_init_key, train_key = mapped
        init_key = init_key if inner.shared_init else own_init_key
        variables = model.init(init_key, data.x[:1])
        coreset = train_lib.Coreset(data.x[indices], data.y[indices], weights)
        arguments = (model, loss_fn, inner, train_key, variables, coreset)
        if not path_steps:
            trained = train_lib.train(*arguments)
            return *outer_of(trained.variables, *outer), trained.ok, None
        trained, (loss, metrics), tail = train_lib.train_and_differentiate(
            *arguments, lambda variables: outer_of(variables, *outer), path_steps
        )
        per_example = lambda variables: loss_fn(outputs_of(variables, data.x), data.y)  # noqa: E731
        return loss, metrics, trained.ok, path_gradient(per_example, tail, mask)

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, plan.mask_chunk)

    def evaluate(data: _Data, key: jax.Array, all_masks: jax.Array) -> Evaluation:
        outer_key, init_key, own_key, train_key = jax.random.split(key, 4)
        packed = masks.pack_masks(all_masks, max(capacities))
        outer = data.outer or (data.x, data.y)
        if 0 < outer_batch < outer[0].shape[0]:
            rows = jax.random.choice(outer_key, outer[0].shape[0], (outer_batch,), replace=False)
            outer = (outer[0][rows], outer[1][rows])
        num_masks = all_masks.shape[0]
        own = (packed.masks, *own_keys(inner, own_key, train_key, num_masks))

        def with_rows(rows):
            packed_rows = (packed.indices[:, :rows], packed.weights[:, :rows])
            return lambda: mapped_over_masks((data, outer, init_key), (*packed_rows, *own))

        sizes = sorted(capacities)
        most = jnp.max(jnp.sum(packed.weights > 0, axis=-1))
        level = jnp.sum(most > jnp.array(sizes[:-1]))
        values, metrics, ok, paths = jax.lax.switch(level, [with_rows(rows) for rows in sizes])
        return Evaluation(values, ok & jnp.isfinite(values), paths, packed.masks, metrics)

    return jax.tree_util.Partial(evaluate, data)


def score(
    outer_loss: losses.LossFn, outputs: jax.Array, targets: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The outer loss, and the accuracy where targets are classes."""
    metrics = {}
    if jnp.issubdtype(targets.dtype, jnp.integer):
        metrics["outer_accuracy"] = jnp.mean(jnp.argmax(outputs, -1) == targets)
    return jnp.mean(outer_loss(outputs, targets)), metrics


def own_keys(
    inner: train_lib.Inner, init_key: jax.Array, train_key: jax.Array, num_masks: int
) -> tuple[jax.Array, jax.Array]:
    """A mask's own keys, for an initialisation that is not shared, and for its training.

    The same batches and dropout for all masks, as long as they share an initialisation.
    """
    trainings = (
        jnp.broadcast_to(train_key, (num_masks,))
        if inner.shared_init
        else jax.random.split(train_key, num_masks)
    )
    return jax.random.split(init_key, num_masks), trainings


def path_gradient(
    per_example: Callable[[Any], jax.Array], tail: train_lib.Tail, mask: jax.Array
) -> jax.Array:
    """dL/dm for all n candidates, chosen or not, from the differentiated last steps of training.

    The training gradient of a step is g = sum_i m_i g_i / W with W = sum_i m_i, so one more unit of
    candidate i changes it by (g_i - g) / W, and the outer loss by the product of that with the
    step's cotangent v. All products v.g_i come from one forward-mode pass over the candidates.

    Args:
      per_example: variables -> losses `[n]`.
      tail: of one training run.
      mask: `[n]`, what it was trained on.

    Returns:
      `[n]`.
    """

    def one_step(total, step):
        variables, cotangent, weight = step

        def losses_of(params):
            return per_example({**variables, "params": params})

        _, products = jax.jvp(losses_of, (variables["params"],), (cotangent,))
        mean = mask @ products / jnp.maximum(jnp.sum(mask), 1e-6)
        return total + (products - mean) / jnp.maximum(weight, 1.0), None

    start = jnp.zeros_like(mask)
    return jax.lax.scan(one_step, start, (tail.variables, tail.cotangents, tail.weight))[0]
