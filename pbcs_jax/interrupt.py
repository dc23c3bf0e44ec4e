"""SIGTERM and SIGINT end a run in order: what was found is kept, and one line is printed."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, NoReturn

CODE = 75
"""The exit code: EX_TEMPFAIL of sysexits.h, 'start the same command again'."""
GRACE = 10.0
"""Seconds until a process ends that is still inside of a compiled program."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end; the message is its name."""


def catch() -> None:
    """From now on the first of these signals raises `Stopped`, and the others are ignored.

    Python sees a signal between two of its own instructions only, and a compiled program may take
    hours. A thread therefore ends the process if nothing happens: files are whole at any moment.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, _stop)
    threading.Thread(target=_watch, args=(reader, writer), daemon=True).start()
    sys.unraisablehook = _quietly


def ignore() -> None:
    """The work is done: a signal changes nothing any more."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def message(name: str) -> str:
    """The line that is printed."""
    return f"stopped by {name}: rerun the same command to continue"


def _stop(number: int, frame: Any) -> NoReturn:
    ignore()
    raise Stopped(signal.Signals(number).name)


def _watch(reader: socket.socket, writer: socket.socket) -> None:
    """Ends the process `GRACE` seconds after a signal; `writer` is kept from being closed."""
    number = reader.recv(1)[0]
    time.sleep(GRACE)
    with contextlib.suppress(OSError):
        os.write(2, f"\n{message(signal.Signals(number).name)}\n".encode())
    os._exit(CODE)


def _quietly(unraisable: Any) -> None:
    """Where a destructor was interrupted Python goes on, and `_watch` ends the process."""
    if not isinstance(unraisable.exc_value, Stopped):
        sys.__unraisablehook__(unraisable)
