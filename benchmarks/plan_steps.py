"""What one outer step of a job consists of, per device, traced from shapes alone."""

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import pbcs_jax as pbcs
from benchmarks import cost
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.compute.plan import traced_bytes
from pbcs_jax.inner import losses
from pbcs_jax.inner.train import Coreset, train, train_and_differentiate
from pbcs_jax.nets import backend
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives import kernel_rows
from pbcs_jax.objectives.network import score
from pbcs_jax.outer import loop, masks
from pbcs_jax.outer.base import Evaluation


@dataclasses.dataclass(frozen=True)
class Job:
    """A selection.

    Attributes:
      n: candidates.
      size: K.
      shape: of a sample; of the kernel `(d,)`, its embedding.
      classes: C.
      settings: of the outer loop.
      network: how networks are trained; None of the kernel.
      model: what is trained.
      outer: held-out or random examples that score a mask; 0 are all candidates.
      by_rows: whether candidates stay on the host, and only chosen rows come to the devices.
    """

    n: int
    size: int
    shape: tuple[int, ...]
    classes: int
    settings: pbcs.Settings
    network: pbcs.Network | None = None
    model: Any = None
    outer: int = 0
    by_rows: bool = False


class Step(NamedTuple):
    """Per device and outer step.

    Attributes:
      cost: of all its masks.
      memory: bytes that the device holds: data and masks.
      each: bytes that one network in training needs at most, none of its arrays freed; 0 of the
        kernel.
      networks: how many the device trains.
      exchanged: bytes that each device receives from the others.
      fed: bytes that come from its host.
    """

    cost: cost.Cost
    memory: float
    each: float
    networks: int
    exchanged: float
    fed: float


def step(job: Job, devices: int, platform: str) -> Step:
    """What a device has to do, of so many.

    Args:
      job: the selection.
      devices: how many share the masks, or of the kernel the rows.
      platform: 'cpu', 'gpu' or 'tpu'.
    """
    with backend.traced_for(platform):
        objective = _by_kernel if job.network is None else _by_networks
        found = objective(job, devices, platform)
        return found._replace(cost=found.cost + _own_work(job))


def _capacity(job: Job) -> int:
    """Rows that most steps are packed into."""
    levels = masks.capacities(job.n, job.size)
    return levels[min(1, len(levels) - 1)]


def _array(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _own_work(job: Job) -> cost.Cost:
    """Of the loop, which every device does: draw, pack, estimate, move, project."""
    capacity = masks.capacities(job.n, job.size)[-1]
    estimator = job.settings.gradient_estimator()

    def evaluate(key, drawn):
        packed = masks.pack_masks(drawn, capacity)
        values = jnp.sum(packed.weights, axis=1)
        paths = packed.masks if estimator.needs_path else None
        differences = packed.masks if estimator.needs_differences else None
        return Evaluation(values, values > 0, paths, packed.masks, None, differences)

    state = jax.eval_shape(
        lambda key: loop.init(key, job.n, job.size, job.settings), jax.random.key(0)
    )
    return cost.of(partial(loop._step, evaluate=evaluate, settings=job.settings), state)


def _by_networks(job: Job, devices: int, platform: str) -> Step:
    assert job.network is not None
    inner, model = job.network.inner, as_model(job.model)
    loss_fn, outer_loss = losses.pair(job.network.loss_fn, job.network.outer_loss, True)
    capacity, outer = _capacity(job), job.outer or job.n
    path_steps = job.network.path_steps if job.settings.gradient_estimator().needs_path else 0
    variables = jax.eval_shape(model.init, _key(), _array(1, *job.shape))
    rows_of = lambda variables, x: in_chunks(lambda rows: model.apply(variables, rows)[0], x, 256)  # noqa: E731

    def one(key, variables, x, y, weights, outer_x, outer_y):
        coreset = Coreset(x, y, weights)
        outer_of = lambda v: score(outer_loss, rows_of(v, outer_x), outer_y)  # noqa: E731
        given = (model, loss_fn, inner, key, variables, coreset)
        if not path_steps:
            return outer_of(train(*given).variables)
        return train_and_differentiate(*given, outer_of, path_steps)

    def slopes(variables, params, x, y):
        losses_of = lambda p: loss_fn(rows_of({**variables, "params": p}, x), y)  # noqa: E731
        return jax.jvp(losses_of, (variables["params"],), (params,))

    labels = partial(_array, dtype=jnp.int32)
    data = _array(capacity, *job.shape), labels(capacity), _array(capacity)
    held_out = _array(outer, *job.shape), labels(outer)
    mine = -(-job.settings.num_masks // devices)
    found = cost.of(one, _key(), variables, *data, *held_out)
    if path_steps:
        candidates = _array(job.n, *job.shape), labels(job.n)
        found += cost.of(slopes, variables, variables["params"], *candidates).times(path_steps)
    # Side by side they are as many operations as one.
    together = 1 if platform == "cpu" else mine
    found = found.times(mine)
    found = found._replace(ops=found.ops / together)
    weights = sum(a.size * 4 for a in jax.tree.leaves(variables))
    half = 2 if inner.dtype == "bfloat16" else 1
    forward = traced_bytes(lambda v, x: model.apply(v, x)[0], variables, _array(1, *job.shape))
    sample = 4 * math.prod(job.shape)
    rows = (inner.batch_size or capacity) * 2 * forward / half
    each = 4 * weights + max(rows, 256 * forward) + capacity * sample
    held = outer * sample if job.by_rows else (job.n + job.outer) * sample
    held += 6 * 4 * job.n * job.settings.num_masks
    exchanged = 12.0 * job.settings.num_masks + (8.0 * job.n if path_steps else 0.0)
    fed = (mine * capacity + outer) * math.prod(job.shape) if job.by_rows else 0
    return Step(found, float(held), each, mine, exchanged * (devices > 1), float(fed))


def _by_kernel(job: Job, devices: int, platform: str) -> Step:
    (d,), c, m = job.shape, job.classes, job.settings.num_masks
    own, capacity = -(-job.n // devices), masks.capacities(job.n, job.size)[-1]
    estimator = job.settings.gradient_estimator()
    squared = losses.squared_error
    path, differences = estimator.needs_path, estimator.needs_differences
    wanted = kernel_rows.Wanted(
        0.1, squared, squared, True, not job.outer, False, path, differences
    )
    side = lambda rows: kernel_rows.Side(  # noqa: E731
        _array(rows, d), _array(c, rows), _array(rows, dtype=jnp.int32), _array(rows)
    )
    held_out = side(-(-job.outer // devices)) if job.outer else None
    data = kernel_rows.Spread(side(own), held_out, _array(d, d) if differences else None)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), m)) if differences else None
    mesh = pbcs.mask_mesh(jax.devices()[:1])
    judge = kernel_rows.judge(wanted, mesh, 8, own)
    found = cost.of(judge, data, _array(m, capacity, dtype=jnp.int32), _array(m, capacity), keys)
    held = 4.0 * own * (d + c + 2) + 6 * 4 * job.n * m + 4 * m * (2 * capacity * d + d * d)
    exchanged = 4.0 * m * (capacity * (d + c) + (c * d if path or differences else 0) + 3)
    exchanged += 4.0 * m * job.n * (path or differences)
    return Step(found, held, 0.0, 0, exchanged * (devices > 1), 0.0)
