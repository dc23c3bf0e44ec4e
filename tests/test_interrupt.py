"""Signals outside of Python's own instructions; the rest is in tests/faults."""

import signal
import subprocess
import sys
import time

import pytest

from pbcs_jax.interrupt import CODE

# A lock of C that is never released holds the process as a compiled program does.
STUCK = """
import ctypes
from pbcs_jax import interrupt
interrupt.GRACE = 0.5
interrupt.catch()
library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
print("ready", flush=True)
library.pthread_mutex_lock(lock)
library.pthread_mutex_lock(lock)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_inside_of_a_compiled_program_ends_too(number):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STUCK], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
    assert process.returncode == CODE
    assert said.strip().endswith("rerun the same command to continue") and "Traceback" not in said
