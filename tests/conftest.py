"""Every test sees eight CPU devices: sharding is the ordinary case, not a special one."""

import gc
import os
import sys
import tempfile

import pytest
import quick

os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8", quick.FLAGS]
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Devices that wait for each other keep threads: eight need more of them than two cores give.
os.environ.setdefault("NPROC", "16")
# Shared with the processes that tests start: most of a small run is compilation.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"pbcs_jax_{os.getuid()}")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
gc.set_threshold(200_000, 50, 100)  # tracing makes many objects, few of them garbage


@pytest.fixture(scope="module", autouse=True)
def _room_for_programs():
    """A process has room for a few thousand compiled programs: those of one file go with it."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.clear_caches()
