"""The command line in two processes: files as of one; none waits for one that is lost."""

import json
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from command_line import ROOT, command, launch
from quick import environment

LONG = (
    "--config=configs/mnist.py:smoke",
    "--config.selection.outer_steps=40",
    "--config.inner.steps=100",
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
    """Exit codes within a minute, and what each process says of its end."""
    codes = [one.wait(timeout=60) for one in running]
    texts = [(folder / f"said{number}").read_text() for number in range(len(running))]
    lines = [re.findall(r"^(?:error: )?process .*", text, re.M) for text in texts]
    return codes, lines


def test_told_to_end_two_processes_continue_and_leave_what_one_leaves(tmp_path):
    done = launch(*LONG, f"--workdir={tmp_path / 'one'}")
    assert done.returncode == 0, done.stderr
    running = start(tmp_path, *LONG, f"--workdir={tmp_path / 'run'}")
    started(tmp_path, running)
    running[1].send_signal(signal.SIGTERM)
    codes, lines = ended(tmp_path, running)
    assert codes == [75, 75], lines
    assert all("stopped by SIGTERM: rerun the same command" in line for [line] in lines)
    steps = [int(p.name) for p in (tmp_path / "run" / "checkpoints").iterdir() if p.name.isdigit()]
    assert max(steps) == (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") < 40

    running = start(tmp_path, *LONG, f"--workdir={tmp_path / 'run'}")
    codes = [one.wait(timeout=300) for one in running]
    assert codes == [0, 0], (tmp_path / "said1").read_text()
    folders = [tmp_path / "one", tmp_path / "run"]
    names = [{p.name for p in folder.iterdir()} for folder in folders]
    assert names[0] == names[1] >= {"report.html", "summary.json", "metrics.jsonl"}
    one, two = (dict(np.load(folder / "coreset.npz")) for folder in folders)
    assert one["indices"].tolist() == two["indices"].tolist()
    np.testing.assert_allclose(one["probabilities"], two["probabilities"], atol=1e-5)
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in folders)
    for name, method in one["methods"].items():
        assert method["test_accuracy"] == two["methods"][name]["test_accuracy"]


@pytest.mark.parametrize("killed", [0, 1])
def test_the_other_of_a_killed_process_ends(tmp_path, killed):
    running = start(tmp_path, *LONG, f"--workdir={tmp_path / 'run'}")
    started(tmp_path, running)
    running[killed].kill()
    codes, lines = ended(tmp_path, running)
    left = 1 - killed
    assert codes[left] == 1
    # Which of the two comes first depends on whether a step or the heartbeat notices it.
    said = ("a process is lost, the lines above name it", f"process {killed} is lost")
    assert lines[left] and any(one in lines[left][-1] for one in said), lines
