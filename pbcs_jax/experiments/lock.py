"""One writer per folder: the system's own lock, which ends with the process that holds it."""

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from pbcs_jax.errors import UserError

NAME = ".pbcs.lock"
_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Holds the folder while it lasts; the file says who does.

    The lock is the system's (flock), not the file: what a dead process leaves is no obstacle.

    Raises:
      UserError: another process holds the folder.
    """
    path = folder / NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"workdir {str(folder)!r} is in use by {_holder(path)}: wait for its end, or give "
                "another --workdir"
            ) from error
        except OSError as error:  # some network file systems
            _LOG.warning(
                "workdir %r is on a file system without locks (%s): start no second process in it",
                *(str(folder), error.strerror),
            )
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def _sign(descriptor: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)


def _holder(path: Path) -> str:
    """Who holds the lock, in words."""
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']} since {holder['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is just being written
        return "another process"
