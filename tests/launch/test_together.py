"""The command line in two processes: files as of one; told to end, all end at the same step."""

import json
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from command_line import ROOT, command, environment, launch

LONG = (
    "--config=configs/mnist.py:smoke",
    "--config.selection.outer_steps=100000",
    "--config.checkpoint_every=4",
)


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start(folder, *arguments, count=2):
    """The processes; what they say is in files of the folder."""
    port, running = free_port(), []
    for number in range(count):
        ends = f"--coordinator=localhost:{port} --num_processes={count} --process_id={number}"
        said = (folder / f"said{number}").open("w")
        running.append(
            subprocess.Popen(
                command(*arguments, *ends.split()),
                env=environment(),
                cwd=ROOT,
                stdout=said,
                stderr=said,
            )
        )
    return running


def started(folder, running, lines=8):
    """Waits until metrics of some steps are there."""
    metrics = folder / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < lines:
        assert all(one.poll() is None for one in running), (folder / "said0").read_text()
        time.sleep(0.1)


def ended(folder, running):
    """Exit codes, the line of error of each, and seconds."""
    began = time.monotonic()
    codes = [one.wait(timeout=60) for one in running]
    seconds = time.monotonic() - began
    texts = [(folder / f"said{number}").read_text() for number in range(len(running))]
    lines = [re.findall(r"^error: .*", text, re.M) for text in texts]
    return codes, lines, seconds


def test_two_processes_leave_what_one_leaves(tmp_path):
    config = "--config=configs/mnist.py:smoke"
    done = launch(config, f"--workdir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    running = start(tmp_path, config, f"--workdir={tmp_path / 'two'}")
    codes = [one.wait(timeout=300) for one in running]
    assert codes == [0, 0], (tmp_path / "said1").read_text()
    names = [{p.name for p in (tmp_path / run).iterdir()} for run in ("one", "two")]
    assert names[0] == names[1] >= {"report.html", "summary.json", "metrics.jsonl"}
    one, two = (dict(np.load(tmp_path / run / "coreset.npz")) for run in ("one", "two"))
    assert one["indices"].tolist() == two["indices"].tolist()
    np.testing.assert_allclose(one["probabilities"], two["probabilities"], atol=1e-5)
    one, two = (
        json.loads((tmp_path / run / "summary.json").read_text()) for run in ("one", "two")
    )
    accuracies = [
        {name: m["test_accuracy"] for name, m in found["methods"].items()} for found in (one, two)
    ]
    assert accuracies[0] == accuracies[1]


@pytest.mark.parametrize("told", [0, 1])
def test_told_to_end_all_end_at_the_same_step(tmp_path, told):
    running = start(tmp_path, *LONG, f"--workdir={tmp_path / 'run'}")
    started(tmp_path, running)
    running[told].send_signal(signal.SIGTERM)
    codes, lines, _ = ended(tmp_path, running)
    assert codes == [75, 75], lines
    assert all("rerun the same command" in line for [line] in lines)
    steps = [int(p.name) for p in (tmp_path / "run" / "checkpoints").iterdir() if p.name.isdigit()]
    kept = (tmp_path / "run" / "metrics.jsonl").read_text().count("\n")
    assert max(steps) == kept


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_of_a_killed_process_end(tmp_path, killed):
    running = start(tmp_path, *LONG, f"--workdir={tmp_path / 'run'}")
    started(tmp_path, running)
    running[killed].kill()
    codes, lines, _ = ended(tmp_path, running)
    left = 1 - killed
    assert codes[left] != 0
    assert any(f"process {killed} is lost" in line for line in lines[left]), lines
