"""Several processes, one per host or per accelerator, that select together.

`jax.distributed` starts them, finds out who is lost, and carries small values between them; arrays
are exchanged by XLA's own collectives inside compiled steps. With one process everything here does
nothing, at once.
"""

import dataclasses
import hashlib
import itertools
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax._src.distributed import global_state  # its store of small values has no public name
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from pbcs_jax.errors import UserError

HEARTBEAT = 20
"""Seconds without a sign of life after which a process counts as lost."""
SHUTDOWN = 10
"""Seconds in which all processes must have come to their end."""
ENDS, ALIVE = "pbcs/ends/", "pbcs/alive/"
_LARGEST_HASHED = 1 << 26  # bytes; of larger arrays some rows stand for all
_ROWS = 1000

_names = itertools.count()  # all processes meet in the same order


def start(
    coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> None:
    """Joins the other processes; to be called before JAX is first used.

    Without arguments it joins those that jax finds by itself: on TPU pods, under Slurm, Open MPI
    and Kubernetes. Where it finds none, this process is the only one.

    Args:
      coordinator: `host:port` of process 0.
      num_processes: how many there are.
      process_id: the number of this one.
    """
    given = (coordinator, num_processes, process_id)
    if any(one is not None for one in given) and None in given:
        raise UserError(
            f"coordinator, num_processes and process_id are {given}: give all three, or none"
        )
    if num_processes is not None and not 0 <= (process_id or 0) < num_processes:
        raise UserError(
            f"process_id is {process_id}: use a number from 0 to {num_processes - 1}, one less "
            "than num_processes"
        )
    _spare_threads()
    jax.config.update("jax_enable_preemption_service", False)  # `check_signals` is in its place
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=SHUTDOWN,
        )
    except ValueError as error:
        if coordinator is None and "should be defined" in str(error):
            return  # no cluster
        raise UserError(
            f"coordinator is {coordinator!r}: give the address host:port of process 0 ({error})"
        ) from error


def _spare_threads() -> None:
    """XLA has as many threads as NPROC says, or as there are cores.

    A CPU device that waits for other processes keeps threads; with fewer than two per device, all
    can end up waiting.
    """
    cores = os.cpu_count() or 1
    asked = os.environ.get("XLA_FLAGS", "").partition("host_platform_device_count=")[2].split()
    devices = max([jax.config.jax_num_cpu_devices, *(int(n) for n in asked[:1] if n.isdigit())])
    os.environ.setdefault("NPROC", str(2 * max(cores, devices)))


def are_several() -> bool:
    """Whether there is more than one."""
    return global_state.client is not None and global_state.num_processes > 1


def is_first() -> bool:
    """Whether this is process 0, which alone writes; so is a process without others."""
    return global_state.process_id == 0


def span(mesh: Mesh) -> bool:
    """Whether devices of several processes are in the mesh."""
    return len({device.process_index for device in mesh.devices.flat}) > 1


def name() -> str:
    """This process in the words of a message; empty if there is no other."""
    number, count = global_state.process_id, global_state.num_processes
    return f"process {number} of {count}: " if are_several() else ""


def place(tree: Any, sharding: NamedSharding) -> Any:
    """Arrays that every process holds whole, on the devices of all of them.

    Args:
      tree: arrays, the same on every process; `agree` finds out whether they are.
      sharding: where each of their parts goes.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    # `device_put` would gather all of an array from all processes, to compare.
    return jax.tree.map(lambda leaf: _place_one(leaf, sharding), tree)


def _place_one(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        kind = jax.random.key_impl(leaf)
        return jax.random.wrap_key_data(_place_one(jax.random.key_data(leaf), sharding), impl=kind)
    host = np.asarray(leaf)
    return jax.make_array_from_callback(
        host.shape, sharding, lambda index: host[index], dtype=host.dtype
    )


class Ended(BaseException):
    """All processes end with this exit code, for this reason."""

    def __init__(self, code: int, why: str):
        super().__init__(why)
        self.code = code


def gather(value: str) -> list[str]:
    """The values of all processes, by their number. All of them must call this."""
    if not are_several():
        return [value]
    client, place = global_state.client, f"pbcs/{next(_names)}/"
    client.key_value_set(f"{place}{global_state.process_id}", value)

    def all_of_them():
        found = client.key_value_dir_get(place)
        return found if len(found) == global_state.num_processes else None

    found = _wait(all_of_them)
    return [one for _, one in sorted((int(key.rpartition("/")[2]), one) for key, one in found)]


def from_first(value: Callable[[], str]) -> str:
    """What `value()` is on process 0, which alone calls it; the others wait for it.

    They wait without a limit: process 0 may have an hour's work to do before.
    """
    if not are_several():
        return value()
    client, place = global_state.client, f"pbcs/{next(_names)}/"
    if is_first():
        own = value()
        client.key_value_set(f"{place}0", own)
        return own
    [(_, found)] = _wait(lambda: client.key_value_dir_get(place) or None)
    return found


def _wait(look: Callable[[], Any]) -> Any:
    """What `look()` gives when it is no longer None; raises once a process has said it ends."""
    pause = 0.002
    while (found := look()) is None:
        for key, text in global_state.client.key_value_dir_get(ENDS):
            code, _, why = text.partition(" ")
            raise Ended(int(code), f"process {key.rpartition('/')[2]} ended, {why}")
        if global_state.client.key_value_dir_get(ALIVE):
            raise ConnectionError("UNAVAILABLE: an exchange of others failed")
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
    return found


def arrays_from_first(tree: Any) -> Any:
    """Arrays of process 0, on all; the others give some of the same shapes and types."""
    return multihost_utils.broadcast_one_to_all(tree) if are_several() else tree


def agree(parts: Mapping[str, Any]) -> None:
    """Raises, on all processes, unless they all hold the same.

    Args:
      parts: by name, what is the same on all: arrays, or anything that `repr` shows in full.
    """
    if not are_several():
        return
    everyone = [one.split() for one in gather(" ".join(map(digest, parts.values())))]
    for number, what in enumerate(parts):
        other = [p for p, one in enumerate(everyone) if one[number] != everyone[0][number]]
        if other:
            raise UserError(
                f"{what} of process {other[0]} is not that of process 0: start all processes with "
                "the same command, key and data"
            )


def digest(value: Any) -> str:
    """A short text that differs where values differ; of a large array, where some of its rows do.

    >>> digest(np.zeros(3)) == digest(np.zeros(3)), digest(np.zeros(3)) == digest(np.ones(3))
    (True, False)
    """
    if not isinstance(value, np.ndarray):
        return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
    rows = value
    if value.nbytes > _LARGEST_HASHED:
        rows = value[np.linspace(0, len(value) - 1, _ROWS).astype(int)]
    found = hashlib.sha256(f"{value.shape} {value.dtype}".encode())
    found.update(
        np.ascontiguousarray(rows).tobytes() if rows.dtype != object else repr(rows).encode()
    )
    return found.hexdigest()[:16]


def plain(value: Any) -> Any:
    """What `repr` shows alike on all processes: of functions and the like, their type alone."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if dataclasses.is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, np.ndarray | jax.Array):
        return digest(np.asarray(value))
    return value if isinstance(value, str | int | float | None) else type(value).__name__


def least(mesh: Mesh, own: int) -> int:
    """The smallest share of memory of all processes: all must cut their work alike.

    Args:
      mesh: whose processes; with one of them, `own` is all.
      own: bytes that this process may have if it is the only one of its host.
    """
    if not span(mesh):
        return own
    found = [one.split() for one in gather(f"{socket.gethostname()} {own}")]
    hosts = [host for host, _ in found]
    return min(int(size) // hosts.count(host) for host, size in found)
