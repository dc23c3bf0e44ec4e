"""Networks trained on what masks choose, some steps at a time, for trainings of hours.

The same trainings as those of `network_objective`, one per device. Nothing is exchanged between
the devices.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pbcs_jax.choices import Choice
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.compute.plan import Compute, plan
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.inner.resume import blank, train_until
from pbcs_jax.inner.train import Progress
from pbcs_jax.nets.model import Model
from pbcs_jax.objectives.network import Network, check_fit, own_keys, score


class Scores(NamedTuple):
    """Of each network, `[M]`; the loss and the metrics are 0 until it has ended.

    Attributes:
      loss: the outer loss.
      metrics: its `outer_accuracy`, where the targets are classes.
      ok: False when it diverged.
      ended: whether its training has.
    """

    loss: jax.Array
    metrics: dict[str, jax.Array]
    ok: jax.Array
    ended: jax.Array


class InSpans(NamedTuple):
    """Trainings on M masks, M at most the number of devices.

    Attributes:
      steps: of each training.
      begin: `masks [M, n] -> progress`, before the first step; leaves `[D, ...]`, one per
        device.
      advance: `(key, masks [M, n], progress, until) -> (progress, Scores)`: the steps up to number
        `until`. The key and the masks are the same for all spans of a training.
    """

    steps: int
    begin: Callable[[Any], Progress]
    advance: Callable[[jax.Array, Any, Progress, int], tuple[Progress, Scores]]


def network_in_spans(
    model: Model,
    x: jax.Array,
    y: jax.Array,
    choice: Choice,
    settings: Network,
    *,
    validation: tuple[jax.Array, jax.Array],
    compute: Compute,
) -> InSpans:
    """What `network_objective` would train in one call; `compute` has a mesh of this process."""
    inner, mesh = settings.inner, compute.mesh
    assert mesh is not None
    loss_fn, outer_loss = losses.pair(settings.loss_fn, settings.outer_loss, is_classes(y))
    check_fit(model, x, y, validation, loss_fn, outer_loss)
    rows = choice.levels[-1]
    chunk = plan(
        model,
        x,
        rows=inner.batch_size or rows or len(x),
        num_masks=1,
        device=mesh.local_devices[0],
        compute=compute,
    ).outer_chunk
    data = mesh_lib.replicate((choice, x, y, validation), mesh)

    def one(shared, given, progress, until):
        (choice, x, y, (outer_x, outer_y)), init_key = shared
        own, own_init_key, train_key = given
        variables = model.init(init_key if inner.shared_init else own_init_key, x[:1])
        coreset = choice.training_data(own, x, y)
        arguments = (model, loss_fn, inner, train_key, variables, coreset)
        progress, trained, ended = train_until(*arguments, progress, until)
        seen = choice.show(own, outer_x) if settings.outer_on == "selected" else outer_x

        def scored():
            of_rows = lambda rows: model.apply(trained.variables, rows)[0]  # noqa: E731
            return score(outer_loss, in_chunks(of_rows, seen, chunk), outer_y)

        nothing = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(scored)
        )
        loss, metrics = jax.lax.cond(ended, scored, lambda: nothing)
        return progress, Scores(loss, metrics, trained.ok, ended)

    def on_one_device(shared, mapped):
        found = one(shared, *jax.tree.map(lambda leaf: leaf[0], mapped))
        return jax.tree.map(lambda leaf: leaf[None], found)

    along = PartitionSpec(mesh_lib.AXIS)
    sharding = NamedSharding(mesh, along)
    spread = jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=(PartitionSpec(), along),
        out_specs=along,
        check_vma=False,  # the networks never talk to each other
    )

    @partial(jax.jit, out_shardings=(sharding, None))
    def advance(data, key, masks, progress, until):
        _, init_key, own_key, train_key = jax.random.split(key, 4)
        own = data[0].cut(data[0].pack(masks)[0], rows)
        num_masks = len(masks)
        own = (own, *own_keys(inner, own_key, train_key, num_masks))
        places = jnp.arange(mesh.size)
        if num_masks < mesh.size:
            fill = jnp.minimum(places, num_masks - 1)
            own = jax.tree.map(lambda leaf: leaf[fill], own)
        until = jnp.where(places < num_masks, until, jnp.minimum(until, 1))  # the others are idle
        progress, scores = spread((data, init_key), (own, progress, until))
        return progress, jax.tree.map(lambda leaf: leaf[:num_masks], scores)

    def begin(masks):
        def first(data, masks):
            choice, x, y, _ = data
            own = jax.tree.map(lambda leaf: leaf[0], choice.cut(choice.pack(masks)[0], rows))
            return model.init(jax.random.key(0), x[:1]), choice.training_data(own, x, y)

        progress = blank(model, loss_fn, inner, *jax.eval_shape(first, data, masks))
        return jax.tree.map(lambda leaf: np.repeat(leaf[None], mesh.size, axis=0), progress)

    def placed(key, masks, progress, until):
        # In one place always: what comes from elsewhere would be compiled for once more.
        return advance(data, key, masks, jax.device_put(progress, sharding), until)

    return InSpans(inner.steps, begin, placed)
