"""Which backend a program is traced for: the one there is, or one that is lowered for from afar."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax

_platform: ContextVar[str] = ContextVar("platform", default="")


def platform() -> str:
    """'cpu', 'gpu' or 'tpu': what convolutions, chunks and meshes are chosen by."""
    return _platform.get() or jax.default_backend()


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """While it lasts programs are traced as on that backend, for `jax.export` to lower.

    Args:
      platform: as `platform()` gives it.
    """
    token = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(token)
