"""The short version of `python -m benchmarks.faults`: real processes, killed and started anew."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from quick import environment

ROOT = Path(__file__).parents[2]
WRONG = ("wrong", "wrong exits", "other results", "harmed")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("faults") / "faults.json"
    variables = {k: v for k, v in environment().items() if k != "PBCS_MEMORY_GB"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults", "--short", f"--out={out}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())["parts"], done.stderr


PARTS = {
    "kills": ("signals", 2),
    "SIGTERM": ("signals", 1),
    "SIGINT": ("signals", 1),
    "starts": ("starts", 1),
    "full disk": ("points", 1),
    "damaged files": ("damaged files", 5),
    "configs": ("configs", 100),
    "misuses": ("misuses", 200),
    "data files": ("data files", 60),
}


@pytest.mark.parametrize("part", PARTS)
def test_nothing_goes_wrong(found, part):
    parts, said = found
    count, least = PARTS[part]
    assert parts[part][count] >= least
    checked = [key for key in WRONG if key in parts[part]]
    assert checked and not any(parts[part][key] for key in checked), said


def test_the_zip_bomb_is_refused_in_under_a_second(found):
    assert found[0]["data files"]["zip bomb refused, s"] < 1
