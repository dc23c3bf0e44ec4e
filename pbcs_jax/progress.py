"""The progress bar of a long call: its stages by name, its steps with the time left.

Whoever makes a user wait opens a bar with `shown`. Everything below names what it does, with
`stage` and `steps`, and need not know whether anybody watches.
"""

import contextlib
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from pbcs_jax import processes

SECONDS = 0.3
"""Between two looks at a bar that is counting."""
_STAGE = "{desc:<22} [{elapsed}]"
_STEPS = "{desc:<22} {bar:18} {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"

_bar: ContextVar[Any] = ContextVar("bar", default=None)


@contextlib.contextmanager
def shown(show: bool = True) -> Iterator[None]:
    """While it lasts there is a bar, in a terminal or a notebook; elsewhere nothing is written.

    Args:
      show: False leaves everything silent. Within another bar that one goes on.
    """
    watched = show and processes.is_first() and (sys.stderr.isatty() or _in_notebook())
    if not watched or _bar.get() is not None:
        yield
        return
    with warnings.catch_warnings():  # without ipywidgets, a notebook shows the bar as text
        warnings.filterwarnings("ignore", "IProgress not found")
        from tqdm.auto import tqdm
    # A terminal that does not know its size would show nothing at all.
    wide = None if _in_notebook() else min(shutil.get_terminal_size().columns - 1, 110)
    bar = tqdm(total=1, bar_format=_STAGE, desc="Preparing", ncols=wide, nrows=20, leave=False)
    ended = threading.Event()

    def tick() -> None:
        """Keeps the clock going while a stage takes long."""
        while not ended.wait(1.0):
            bar.refresh()

    clock = threading.Thread(target=tick, daemon=True)
    clock.start()
    token = _bar.set(bar)
    try:
        yield
    finally:
        _bar.reset(token)
        ended.set()
        clock.join()
        bar.close()


def stage(name: str) -> None:
    """Names what is being done now; how long it takes is not known."""
    _begin(name, _STAGE, 1, 0)


@contextlib.contextmanager
def steps(name: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Counts steps of known number.

    Args:
      name: what is being done.
      total: how many steps there are.
      done: how many of them are done already.

    Yields:
      A function of the number of steps done, a function that gives a short text, called now and
      then only, since it may have to wait for a device, and another name.
    """
    bar = _begin(name, _STEPS, total, done)
    next_look = 0.0

    def at(count: int, text: Callable[[], str] = str, name: str = name) -> None:
        nonlocal next_look
        if bar is None or (time.monotonic() < next_look and count < total):
            return
        bar.set_postfix_str(text(), refresh=False)
        bar.set_description_str(name, refresh=False)
        bar.update(count - bar.n)
        bar.refresh()
        next_look = time.monotonic() + SECONDS

    yield at


def _begin(name: str, form: str, total: int, done: int) -> Any:
    """The bar at the start of something new; None where there is none."""
    bar = _bar.get()
    if bar is not None:
        bar.bar_format = form
        bar.reset(total)
        bar.initial = bar.n = done
        bar.set_postfix_str("", refresh=False)
        bar.set_description_str(name)
    return bar


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"
