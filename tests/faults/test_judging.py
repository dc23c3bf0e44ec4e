"""A judge killed in the middle of a training resumes there, to the same bits."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from quick import environment

from benchmarks.fault_runs import command, write_data
from pbcs_jax.choices import Samples
from pbcs_jax.compute.plan import Compute
from pbcs_jax.experiments import judge as judge_lib
from pbcs_jax.experiments.checkpoints import Checkpoints
from pbcs_jax.experiments.judge import Judge
from pbcs_jax.inner.train import Inner
from pbcs_jax.interrupt import CODE
from pbcs_jax.nets import MLP
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.objectives.network_spans import network_in_spans

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pbcs_jax.__main__ import run
from pbcs_jax.experiments import judge
judge.SPAN, judge.KEEP_EVERY = (float(sys.argv.pop(1)) for _ in range(2))
run()
"""
STEPS = 2000


def start(data, folder, span=2.0, keep_every=60.0):
    """A run that is all judging, of two networks one after the other."""
    changes = {"methods": "('stratified',)", "evaluation.num_seeds": 2, "evaluation.steps": STEPS}
    arguments = command("judging", data, folder, changes)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(span), str(keep_every), *arguments],
        env=environment() | {"JAX_NUM_CPU_DEVICES": "1"},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def kept(folder):
    return sorted((folder / "judging").rglob("state.npz"))


def wait_for(running, condition):
    while running.poll() is None and not condition():
        time.sleep(0.002)
    assert running.poll() is None, running.communicate()[0]


def accuracies(data, folder):
    running = start(data, folder)
    assert "Report" in running.communicate()[0] and running.returncode == 0
    assert not (folder / "judging").exists()
    summary = json.loads((folder / "summary.json").read_text())
    return summary["methods"]["stratified"]["test_accuracy"]["runs"]


def test_killed_and_stopped_in_the_middle_of_trainings(tmp_path):
    data, folder = write_data(tmp_path / "data.npz"), tmp_path / "run"
    running = start(data, folder, span=0.0, keep_every=0.0)  # kept after every step
    wait_for(running, lambda: len(kept(folder)) == 3)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL and kept(folder)
    judged = folder / "judging" / "stratified.json"
    assert not json.loads(judged.read_text())["runs"]["mlp"]  # no network yet
    running = start(data, folder, span=0.0)
    wait_for(running, lambda: json.loads(judged.read_text())["runs"]["mlp"])
    time.sleep(0.3)
    running.send_signal(signal.SIGTERM)
    said = running.communicate()[0]
    assert running.returncode == CODE and said.count("stopped by SIGTERM") == 1
    with np.load(max(kept(folder), key=lambda file: int(file.parent.name))) as state:
        start_, until = state["state/1"], state["state/2"]
    assert start_ == 1 and 0 < until < STEPS  # kept by the signal alone
    assert accuracies(data, folder) == accuracies(data, tmp_path / "whole")


def problem(make, steps=40):
    """A judge of 60 rows, on at most two devices."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 5)).astype(np.float32), np.arange(90) % 3
    given = as_model(MLP(num_classes=3, hidden=(8,))), x[:60], y[:60], Samples((9,))
    settings = Network(Inner(steps=steps, shared_init=False), outer_loss="error_rate")
    return Judge(
        lambda size, mesh: make(
            *given, settings, validation=(x[60:], y[60:]), compute=Compute(mesh)
        ),
        60,
        jax.random.key(0),
    )


CORESETS = [np.arange(9) + 7 * i for i in range(3)]


def test_spans_judge_as_one_call_does(monkeypatch):
    devices = jax.local_devices()[:2]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    at_once = list(problem(network_objective)(CORESETS))
    assert [len(found) for found in at_once] == [2, 1]  # a device is idle at the end
    for span in (0.0, 2.0):
        monkeypatch.setattr(judge_lib, "SPAN", span)
        assert list(problem(network_in_spans)(CORESETS)) == at_once


@pytest.mark.parametrize("damage", [None, b"[]"])
def test_it_continues_at_the_step_that_was_kept(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(judge_lib, "SPAN", 0.0)
    monkeypatch.setattr(judge_lib, "KEEP_EVERY", 0.0)
    whole = list(problem(network_in_spans)(CORESETS))
    spans = []

    def counted(*arguments, ends=10**9, **options):
        made = network_in_spans(*arguments, **options)

        def advance(key, masks, progress, until):
            spans.append(until)
            if len(spans) > ends:
                raise KeyboardInterrupt
            return made.advance(key, masks, progress, until)

        return made._replace(advance=advance)

    def stops(*arguments, **options):
        return counted(*arguments, ends=25, **options)

    with pytest.raises(KeyboardInterrupt):
        list(problem(stops)(CORESETS, kept=Checkpoints(tmp_path, "mine")))
    states = sorted(tmp_path.rglob("state.npz"), key=lambda f: int(f.parent.name))
    assert [int(f.parent.name) for f in states] == [23, 24, 25]
    if damage is not None:
        states[-1].write_bytes(damage)
    spans.clear()
    assert list(problem(counted)(CORESETS, kept=Checkpoints(tmp_path, "mine"))) == whole
    assert spans[0] == (26 if damage is None else 25)
