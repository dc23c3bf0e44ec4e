"""The mask axis as a mesh axis: M masks spread over the devices, `vmap` inside each."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pbcs_jax import processes
from pbcs_jax.nets.backend import platform

AXIS = "masks"
LARGEST_GATHERED = 1 << 10
"""Numbers of a mask's output up to which all processes get those of all masks."""


def use_all_cores(most: int = 8) -> None:
    """Makes every core of the CPU a device of its own, to be called before JAX is first used.

    A small network keeps one core busy, hardly two: masks on cores side by side are up to 1.6 times
    as fast as each on all of them. A number of devices that the user has set is left alone.

    Args:
      most: devices at most; more than there are masks would have nothing to do.
    """
    is_set = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not is_set:
        cores = len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))
        jax.config.update("jax_num_cpu_devices", min(cores, most))
        # XLA has as many threads as this number, or as there are cores. A device that waits for
        # the others keeps threads; with no more of them than devices all can end up waiting.
        os.environ.setdefault("NPROC", str(2 * cores))


def mask_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh with one axis over `devices` (all of them by default), for the masks."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh(
        (len(devices),), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices
    )


def solver_mesh() -> Mesh:
    """The mesh for objectives that are linear algebra: all devices, of CPUs one per process.

    Its routines keep all cores busy by themselves, and block a thread that CPU devices share.
    """
    on_cpu = platform() == "cpu"
    return mask_mesh(_one_per_process() if on_cpu else None)


def _one_per_process() -> list[jax.Device]:
    first: dict[int, jax.Device] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return list(first.values())


def replicate(tree: Any, mesh: Mesh) -> Any:
    """The arrays of `tree` on every device of the mesh."""
    return processes.place(tree, NamedSharding(mesh, PartitionSpec()))


def map_masks(function: Callable, mesh: Mesh, chunk: int, is_spread: bool = False) -> Callable:
    """`function` for all masks, spread over the mesh, `chunk` of them at once on each device.

    M need not divide by the number of devices: some then have fewer masks than others.

    Args:
      function: `(shared, mapped) -> outputs` for one mask. `shared` is a pytree that all masks see,
        `mapped` a pytree of this mask's own arrays.
      mesh: from `mask_mesh`.
      chunk: masks that a device works on side by side (`vmap`), one chunk after another.
      is_spread: whether each device has its own masks' arrays already, and no others.

    Returns:
      `(shared, mapped with a leading axis [M, ...]) -> outputs with a leading axis [M, ...]`.
    """
    rows = PartitionSpec(AXIS)
    function = jax.jit(function)  # traced once, for its shapes and for its work

    def on_one_device(shared, mapped, wanted):
        def one(own):
            return function(shared, own)

        if chunk == 1:
            return _map_wanted(one, mapped, wanted)
        return jax.lax.map(one, mapped, batch_size=chunk)

    spread = jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=(PartitionSpec(), rows, rows),
        out_specs=rows,
        check_vma=False,  # the masks never talk to each other inside
    )

    def mapped_over_masks(shared: Any, mapped: Any) -> Any:
        num_masks = jax.tree.leaves(mapped)[0].shape[0]
        padding = -num_masks % mesh.size
        places = jnp.arange(num_masks + padding)
        fill = jnp.minimum(places, num_masks - 1)
        # What is given is on every device, and each takes its own rows. Otherwise the partitioner
        # would also draw and pack the masks in shares, with ten exchanges per step in no order:
        # processes that start different ones wait for each other for ever.
        everywhere = NamedSharding(mesh, PartitionSpec())
        if not is_spread:
            mapped = jax.lax.with_sharding_constraint(mapped, everywhere)
        mapped_and_filled = jax.tree.map(lambda leaf: leaf[fill] if padding else leaf, mapped)
        outputs = spread(shared, mapped_and_filled, places < num_masks)
        leaves, structure = jax.tree.flatten(outputs)
        # Gradients of all candidates stay where they are made: their mean over the masks is taken
        # on the devices, and processes exchange [n] numbers in place of [M, n].
        apart = processes.span(mesh) and not padding
        large = [apart and leaf[0].size > LARGEST_GATHERED for leaf in leaves]
        outputs = [leaf for leaf, is_large in zip(leaves, large, strict=True) if not is_large]
        # What is exchanged between devices is one array [M, d]: CPU devices share their threads,
        # and one that waits in several exchanges at once can leave the others without any.
        _, unpack = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], outputs))
        packed = jax.vmap(lambda tree: ravel_pytree(tree)[0])(outputs)
        packed = jax.lax.with_sharding_constraint(packed, NamedSharding(mesh, rows))
        # Every device gets all losses: the little that follows is done by each for itself.
        packed = jax.lax.with_sharding_constraint(packed, everywhere)
        unpacked = jax.vmap(unpack)(packed[:num_masks])
        small = iter(jax.lax.with_sharding_constraint(unpacked, everywhere))
        found = [
            leaf if is_large else next(small) for leaf, is_large in zip(leaves, large, strict=True)
        ]
        return jax.tree.unflatten(structure, found)

    return mapped_over_masks


def _map_wanted(function: Callable, mapped: Any, wanted: jax.Array) -> Any:
    """`lax.map` over the leading axis that stops at the first row that is not `wanted`.

    A device with fewer masks than the others is idle then, and on CPU lends them its core.
    """

    def row(i):
        return jax.tree.map(lambda leaf: leaf[i], mapped)

    def body(i, outputs):
        own = function(row(i))
        return jax.tree.map(lambda all_, one: all_.at[i].set(one), outputs, own)

    like = jax.eval_shape(function, row(0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros((*wanted.shape, *leaf.shape), leaf.dtype), like)
    return jax.lax.fori_loop(0, jnp.sum(wanted), body, zeros)
