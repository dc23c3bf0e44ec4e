"""The memory plan: how many masks, and how many outer examples, a device works on at once.

A run should never die for want of memory where smaller chunks would do. What one chunk needs is
bounded from the traced program, before anything is compiled: every array that it mentions counts.
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pbcs_jax import memory
from pbcs_jax.compute.mesh import AXIS
from pbcs_jax.errors import UserError, check_number
from pbcs_jax.nets.model import Model

# Larger pieces leave the cache and are no faster.
LARGEST_OUTER_CHUNK = 256

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Compute:
    """Where and in which pieces a selection is computed, and who is told; none of it changes what
    is selected.

    Attributes:
      mesh: devices to spread the masks over, see `mask_mesh`; all of them if None.
      mask_chunk: networks that a device trains side by side; 0 chooses, see `plan`.
      outer_chunk: outer examples that go through a network at once; 0 chooses.
      callback: called with the state and the metrics of the steps since its last call.
      callback_every: outer steps between two calls.
    """

    mesh: Mesh | None = None
    mask_chunk: int = 0
    outer_chunk: int = 0
    callback: Callable[[Any, list[dict[str, Any]]], None] | None = None
    callback_every: int = 10

    def __post_init__(self):
        for name in ("mask_chunk", "outer_chunk"):
            check_number(name, getattr(self, name), least=0, whole=True)
        check_number("callback_every", self.callback_every, least=1, whole=True)
        if self.callback is not None and not callable(self.callback):
            raise UserError(f"callback is {self.callback!r}: give a function of (state, metrics)")
        if self.mesh is not None and AXIS not in getattr(self.mesh, "axis_names", ()):
            raise UserError(
                f"mesh is {self.mesh!r}: give one with the axis {AXIS!r}, see mask_mesh"
            )


class Plan(NamedTuple):
    """What was chosen.

    Attributes:
      mask_chunk: networks side by side on a device.
      outer_chunk: outer examples through a network at once.
      needed: bytes that such a chunk needs at most, by the estimate.
      budget: bytes there are.
    """

    mask_chunk: int
    outer_chunk: int
    needed: int
    budget: int


def plan(
    model: Model,
    x: jax.Array,
    *,
    rows: int,
    num_masks: int,
    device: jax.Device,
    path_steps: int = 0,
    compute: Compute = Compute(),
    budget: int = 0,
) -> Plan:
    """The largest chunks that fit, with those given left as they are.

    On CPU one network at a time is also the fastest: it keeps all cores busy and stays in the
    cache. Elsewhere as many as there is room for.

    Args:
      model: what is trained.
      x: `[n, ...]` candidates; only the shape counts.
      rows: of a training batch.
      num_masks: masks that a device has in all.
      device: which.
      path_steps: last training steps that are kept and differentiated.
      compute: its `mask_chunk` and `outer_chunk` are kept where they are not 0.
      budget: bytes; 0 is `memory_budget(device)`.

    Returns:
      `Plan`; it is logged too.
    """
    budget = budget or memory_budget(device)
    key = jax.eval_shape(lambda: jax.random.key(0))
    example = jax.ShapeDtypeStruct((1, *jnp.shape(x)[1:]), x.dtype)
    variables = jax.eval_shape(model.init, key, example)
    weights = _bytes(jax.tree.leaves(variables))

    def outputs(variables, rows):
        return model.apply(variables, rows)[0]

    forward = traced_bytes(outputs, variables, example)
    # Reverse mode keeps what forward mode made and adds as much again.
    training = 2 * forward * rows
    # Weights, gradient, momentum, update; the kept steps and their cotangents.
    fixed = (4 + 2 * path_steps) * weights

    def needed(mask_chunk, outer_chunk):
        # With path gradients the outer data are gone through in forward and reverse mode.
        outer = forward * outer_chunk * (2 if path_steps else 1)
        return mask_chunk * (fixed + max(training, outer))

    least = fixed + rows * _bytes([example])
    if least > memory.total():
        raise UserError(
            f"a network and its training data take {least / 2**30:.1f} GB, and there are "
            f"{memory.total() / 2**30:.1f} GB: use a smaller width or batch_size"
        )
    mask_chunk, outer_chunk = compute.mask_chunk, compute.outer_chunk or LARGEST_OUTER_CHUNK
    while not compute.outer_chunk and outer_chunk > 1 and needed(1, outer_chunk) > budget:
        outer_chunk //= 2
    if not mask_chunk:
        most = 1 if device.platform == "cpu" else num_masks
        mask_chunk = max(1, min(most, budget // max(needed(1, outer_chunk), 1)))
    chosen = Plan(mask_chunk, outer_chunk, needed(mask_chunk, outer_chunk), budget)
    _LOG.info(
        "memory plan: %d of %d masks at once, outer data %d at a time: at most %.0f MB of %.0f MB",
        *(mask_chunk, num_masks, outer_chunk, chosen.needed / 2**20, budget / 2**20),
    )
    return chosen


def memory_budget(device: jax.Device) -> int:
    """Bytes that the device's chunks may take: half of what it has, or PBCS_MEMORY_GB."""
    if allowed := memory.allowed():
        return allowed
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] // 2
    return memory.total() // (2 * jax.local_device_count())  # CPU devices share it


def traced_bytes(function: Callable, *arguments: Any) -> int:
    """Bytes of every array that a function computes, were none of them freed or fused away."""
    return _computed(jax.make_jaxpr(function)(*arguments).jaxpr)


def _computed(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [p for p in jax.tree.leaves(list(equation.params.values())) if _is_jaxpr(p)]
        if inner:
            total += sum(_computed(getattr(p, "jaxpr", p)) for p in inner)
        else:
            total += _bytes([v.aval for v in equation.outvars])
    return total


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def _bytes(arrays: Any) -> int:
    return sum(a.size * a.dtype.itemsize for a in arrays)
