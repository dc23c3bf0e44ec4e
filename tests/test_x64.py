import subprocess
import sys
from pathlib import Path

from quick import environment


def test_everything_works_in_64_bit_mode():
    script = Path(__file__).with_name("x64.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment() | {"JAX_ENABLE_X64": "1", "PYTHONPATH": str(script.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all is well" in done.stdout
