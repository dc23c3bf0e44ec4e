"""What the tests of the command line share: processes, a file of data, and how errors look."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from quick import environment

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n"


def command(*arguments):
    return [sys.executable, str(ROOT / "launch.py"), *map(str, arguments)]


def launch(*arguments, **options):
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), cwd=ROOT, **options
    )


def write_npz(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.normal(size=(60, 5)).astype(np.float32),
        "y_train": np.arange(60) % 3,
        "x_test": rng.normal(size=(20, 5)).astype(np.float32),
        "y_test": np.arange(20) % 3,
    } | changes
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})


def assert_one_line(done, said):
    assert done.returncode not in (0, None) and done.returncode > 0
    assert "Traceback" not in done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0], done.stderr
