"""How several processes end: at the same step if one is told to, never waiting for a lost one."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src.distributed import global_state

from pbcs_jax import interrupt
from pbcs_jax.errors import UserError
from pbcs_jax.processes import ALIVE, ENDS, Ended, are_several, gather, is_first

ROLL_CALL = 4
"""Seconds in which those that are left notice that another is lost."""


class _Signals:
    """What SIGTERM does: it ends this process at once, or, in a selection, all at one step."""

    together = False
    came = ""
    aborted: Any = None

    def __call__(self, number: int, *_: Any) -> None:
        self.came = signal.Signals(number).name
        if not self.together:
            raise Ended(interrupt.CODE, interrupt.message(self.came))


_signals = _Signals()


def heed_signals(say: Callable[[str], None]) -> None:
    """From now on SIGTERM and SIGINT raise `Ended` here, in `stops_together` on all processes.

    Where another process falls silent JAX names it and aborts this one, from a thread of its own
    and in many lines. Instead of the last of them, `say` gets one.
    """
    signal.set_wakeup_fd(-1)  # no time limit of one process's own: all come to one step first
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _signals)

    def aborted(_: int) -> None:
        say("a process is lost, the lines above name it: rerun the same command")
        os._exit(1)

    # A handler of Python's would wait for the main thread, which waits for the other process.
    _signals.aborted = ctypes.CFUNCTYPE(None, ctypes.c_int)(aborted)
    ctypes.CDLL(None).signal(int(signal.SIGABRT), _signals.aborted)


@contextlib.contextmanager
def stops_together() -> Iterator[None]:
    """While it lasts SIGTERM waits for `check_signals`."""
    _signals.together = are_several()
    try:
        yield
    finally:
        _signals.together = False
    if _signals.came:  # after the last step
        raise Ended(interrupt.CODE, interrupt.message(_signals.came))


def check_signals() -> None:
    """Raises `Ended` on all processes if one was told to end; all must call it at the same step."""
    told = [name for name in gather(_signals.came) if name]
    if are_several() and told:
        raise Ended(interrupt.CODE, interrupt.message(told[0]))


def end(code: int, why: str, orderly: bool = True) -> None:
    """Ends this process with a code, whatever the others do; does nothing if there are none.

    Args:
      code: the exit code.
      why: for those that wait for this process.
      orderly: whether all processes are likely to come here within `SHUTDOWN` seconds.
    """
    if not are_several():
        return
    with contextlib.suppress(Exception):
        global_state.client.key_value_set(f"{ENDS}{global_state.process_id}", f"{code} {why}")
    if orderly:
        with contextlib.suppress(Exception):
            jax.distributed.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def named_losses() -> Iterator[None]:
    """Within it an exchange that fails raises `Ended`, with the number of the lost process."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = str(error).lower()
        signs = ("gloo", "unavailable", "heartbeat", "nccl", "coordinat")
        if not are_several() or not any(sign in text for sign in signs):
            raise
        raise Ended(1, _lost()) from error


def _lost() -> str:
    """Which processes no longer answer, in words, after a failed exchange.

    An exchange that fails fails for all that are left, so that they call this together.
    """
    client = global_state.client
    try:
        client.key_value_set(f"{ALIVE}{global_state.process_id}", "")
        time.sleep(ROLL_CALL)
        alive = {int(key.rpartition("/")[2]) for key, _ in client.key_value_dir_get(ALIVE)}
    except Exception:  # process 0 keeps these values
        return "process 0 is lost"
    if is_first():
        time.sleep(ROLL_CALL / 2)  # until the others have read them
    gone = sorted(set(range(global_state.num_processes)) - alive)
    names = ", ".join(map(str, gone))
    return f"process {names} is lost" if gone else "an exchange between processes failed"
