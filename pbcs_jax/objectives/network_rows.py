"""The network objective where candidates are rows by index: only the chosen ones are ever read.

The loop draws masks on the devices and calls this with them. The indices come to the host, which
takes the rows of its own processes' masks and hands them to the compiled training, packed. The
number of rows that programs are compiled for is chosen here, in Python: no `lax.switch`, whose
branches would each keep what grows with n.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pbcs_jax import processes
from pbcs_jax.choices import Samples
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.compute.plan import Compute, memory_budget, plan
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.inner.train import Coreset, train
from pbcs_jax.nets.model import Model
from pbcs_jax.objectives.network import Network, check_fit, own_keys, score
from pbcs_jax.outer import masks as masks_lib
from pbcs_jax.outer.base import Evaluation, OnHost
from pbcs_jax.rows import Scaled

OUTER_BATCH = 1000
"""Candidates that an outer loss is taken of where nothing else is given."""


def rows_objective(
    model: Model,
    x: Scaled,
    y: np.ndarray,
    choice: Samples,
    settings: Network,
    *,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    num_masks: int = 8,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
) -> OnHost:
    """`network_objective` of rows by index, without path gradients.

    Args:
      model: see `nets.model.as_model`.
      x: the candidates.
      y: `[n, ...]` their targets.
      choice: numbers of rows that masks are packed into.
      settings: how networks are trained and scored. Without validation data the outer loss is that
        of `outer_batch` random candidates, `OUTER_BATCH` where it is 0.
      validation: `(x, y)`, standardised, or None.
      num_masks: M, for the memory plan.
      compute: devices and chunks.
    """
    inner = settings.inner
    loss_fn, outer_loss = losses.pair(settings.loss_fn, settings.outer_loss, is_classes(y))
    mesh = compute.mesh or mesh_lib.mask_mesh()
    example = (x.rows.some(2) - x.mean) / x.std
    check_fit(model, example, y, validation, loss_fn, outer_loss)
    cut = plan(
        model,
        example,
        rows=inner.batch_size or choice.levels[-1],
        num_masks=-(-num_masks // mesh.size),
        device=mesh.local_devices[0],
        compute=compute,
        budget=processes.least(mesh, memory_budget(mesh.local_devices[0])),
    )
    moments = mesh_lib.replicate((x.mean, x.std), mesh)
    by_mask = NamedSharding(mesh, PartitionSpec(mesh_lib.AXIS))

    def scaled(rows, moments):
        mean, std = moments
        return (rows.astype(jnp.float32) - mean) / std

    def evaluate_one(shared, mapped):
        (outer_x, outer_y), moments, init_key = shared
        rows, targets, weights, own_init_key, train_key = mapped
        coreset = Coreset(scaled(rows, moments), targets, weights)
        first_key = init_key if inner.shared_init else own_init_key
        variables = model.init(first_key, coreset.x[:1])
        trained = train(model, loss_fn, inner, train_key, variables, coreset)
        rows_of = lambda some: model.apply(trained.variables, some)[0]  # noqa: E731
        outputs = in_chunks(rows_of, outer_x, cut.outer_chunk)
        return *score(outer_loss, outputs, outer_y), trained.ok

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, cut.mask_chunk, is_spread=True)

    @jax.jit
    def pack(masks):
        # What is beyond the last chosen one is padding, whatever it is.
        packed = masks_lib.pack_masks(masks, choice.levels[-1])
        return packed, jnp.max(jnp.sum(packed.weights > 0, axis=-1))

    @jax.jit
    def train_all(keys, packed, outer, moments):
        init_key, own_key, train_key = keys
        rows, targets, weights = packed
        own = own_keys(inner, own_key, train_key, len(weights))
        if validation is None:
            outer = (scaled(outer[0], moments), outer[1])
        return mapped_over_masks((outer, moments, init_key), (rows, targets, weights, *own))

    def evaluate(key: jax.Array, masks: jax.Array) -> Evaluation:
        outer_key, *keys = jax.random.split(key, 4)
        packed, most = pack(masks)
        level = min(rows for rows in choice.levels if rows >= min(int(most), choice.levels[-1]))
        number = len(masks)
        # Masks that fill up the devices are copies of the first; what they give is left out.
        kept = np.arange(number + -number % mesh.size) % number
        indices = np.asarray(packed.indices)[kept, :level]
        weights = np.asarray(packed.weights)[kept, :level]
        given = (
            _rows_of_own_masks(x, indices, by_mask),
            _place(y[indices], by_mask),
            _place(weights, by_mask),
        )
        outer = validation or _random_outer(outer_key, x, y, settings.outer_batch or OUTER_BATCH)
        outer = mesh_lib.replicate(outer, mesh)
        values, metrics, ok = jax.tree.map(
            lambda leaf: leaf[:number], train_all(tuple(keys), given, outer, moments)
        )
        return Evaluation(values, ok & jnp.isfinite(values), None, packed.masks, metrics)

    return OnHost(evaluate, NamedSharding(mesh, PartitionSpec()))


def _place(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _rows_of_own_masks(x: Scaled, indices: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """`[M, rows, ...]`, of which this process reads what its own devices work on."""

    def own(index: tuple[slice, ...]) -> np.ndarray:
        wanted = indices[index[0]]
        return x.rows[wanted.ravel()].reshape(*wanted.shape, *x.shape[1:])

    return jax.make_array_from_callback((*indices.shape, *x.shape[1:]), sharding, own)


def _random_outer(key: jax.Array, x: Scaled, y: np.ndarray, batch: int) -> Any:
    """The same random candidates on all processes, as they are in the source, and their targets."""
    seed = np.asarray(jax.random.key_data(key))
    batch = min(batch, len(x))
    rows = np.sort(np.random.default_rng(seed).choice(len(x), batch, replace=False))
    return x.rows[rows], y[rows]
