"""Several processes over loopback: the same selection as one, and one error where they differ."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import quick

from pbcs_jax import UserError, ending, processes

SCRIPT = Path(__file__).with_name("select_together.py")


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def together(file, count, devices=1, differs=""):
    """Runs the script in so many processes; their outputs."""
    flags = f"{quick.FLAGS} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags}
    coordinator = f"localhost:{free_port()}"
    ends = [[coordinator, str(count), str(number), differs] for number in range(count)]
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(file), *(end if count > 1 else [])],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for end in ends
    ]
    outputs = [one.communicate(timeout=700) for one in running]
    assert [one.returncode for one in running] == [0] * count, outputs
    return [out for out, _ in outputs]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    file = tmp_path_factory.mktemp("alone") / "found.npz"
    together(file, 1)
    with np.load(file) as found:
        return dict(found)


def test_two_processes_select_what_one_selects(alone, tmp_path):
    together(tmp_path / "found.npz", 2)
    with np.load(tmp_path / "found.npz") as found:
        assert set(found) == set(alone)
        for name in found:
            np.testing.assert_allclose(found[name], alone[name], atol=1e-5, err_msg=name)


def test_processes_that_differ_end_with_the_same_error(tmp_path):
    said = together(tmp_path / "none", 2, differs="x")
    assert said[0] == said[1]
    assert said[0].startswith("x of process 1 is not that of process 0: start all processes")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("localhost:1", 2, None), "give all three"),
        (("localhost:1", 2, 2), "process_id is 2: use a number from 0 to 1"),
    ],
)
def test_half_an_address_is_refused(given, said):
    with pytest.raises(UserError, match=said):
        processes.start(*given)


def test_alone_there_is_nobody_to_wait_for():
    assert processes.gather("own") == ["own"]
    assert processes.from_first(lambda: "own") == "own"
    assert processes.is_first() and processes.name() == ""
    processes.agree({"x": np.zeros(3)})
    ending.check_signals()
