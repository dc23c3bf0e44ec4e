"""Killed runs and sweeps resume with bit-identical results; damaged checkpoints are passed over."""

import json
import random
import shutil
import signal
import subprocess
import time

import pytest
from command_line import PNG, ROOT, command
from forked import forked  # noqa: F401 (a fixture)
from quick import environment

LONGER = (
    "--config=configs/mnist.py:smoke",
    "--config.selection.outer_steps=40",
    "--config.checkpoint_every=4",
    "--config.inner.steps=60",
)


def kill_after(workdir, lines, wait):
    """Starts the run and kills it -9 a moment after its metrics reach a number of lines."""
    process = subprocess.Popen(
        command(*LONGER, f"--workdir={workdir}"),
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics = workdir / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= lines:
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            process.wait()
            return process.returncode == -signal.SIGKILL
        time.sleep(0.005)
    return False


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, forked):  # noqa: F811
    workdir = tmp_path_factory.mktemp("whole") / "run"
    done = forked(*LONGER, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    return workdir


def test_killed_three_times_it_ends_with_the_same_bits(uninterrupted, tmp_path, forked):  # noqa: F811
    workdir = tmp_path / "run"
    rng = random.Random()
    moments = [(n, rng.uniform(0, 0.3)) for n in sorted(rng.sample(range(2, 30), 3))]
    print("killed at", moments)
    assert all([kill_after(workdir, lines, wait) for lines, wait in moments])
    done = forked(*LONGER, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    for name in ("coreset.npz", "metrics.jsonl"):
        assert (workdir / name).read_bytes() == (uninterrupted / name).read_bytes(), name


@pytest.mark.parametrize("how", ["half", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(uninterrupted, tmp_path, forked, how):  # noqa: F811
    workdir = tmp_path / "run"
    shutil.copytree(uninterrupted, workdir)
    for name in ("summary.json", "coreset.npz", "report.html"):
        (workdir / name).unlink()
    shutil.rmtree(workdir / "methods")  # what was selected would not be selected again
    steps = sorted(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())
    assert len(steps) >= 2
    newest = workdir / "checkpoints" / str(steps[-1])
    for file in newest.rglob("*"):
        if file.is_file() and file.stat().st_size > 1:
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 2] if how == "half" else b"")
    done = forked(*LONGER, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert f"checkpoint {steps[-1]}" in done.stderr
    assert (workdir / "coreset.npz").read_bytes() == (uninterrupted / "coreset.npz").read_bytes()


SWEEP = (
    "--config=configs/mnist_transfer.py:smoke",
    "--config.methods=('pbcs', 'uniform', 'whole')",
    "--config.sweep.points=('coreset_size=10', 'coreset_size=20')",
    "--config.evaluation.model=mlp",
    "--config.evaluation.transfer=('convnet',)",
    "--config.evaluation.epochs=2",
)


def test_a_sweep_goes_on_where_it_stopped(tmp_path, forked):  # noqa: F811
    workdir = tmp_path / "sweep"
    process = subprocess.Popen(
        command(*SWEEP, f"--workdir={workdir}"),
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    first = workdir / "runs" / "coreset_size=10" / "seed=0" / "methods"
    while process.poll() is None and not (first / "uniform.json").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {p: p.stat().st_mtime_ns for p in first.glob("*.json")}
    assert {p.stem for p in kept} >= {"pbcs", "uniform"} and not (workdir / "summary.json").exists()

    done = forked(*SWEEP, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    summary = json.loads((workdir / "summary.json").read_text())
    assert list(summary["points"]) == ["coreset_size=10", "coreset_size=20"]
    for point in summary["points"].values():
        assert set(point["methods"]) == {"pbcs", "uniform", "whole"}
        for record in point["methods"].values():
            assert 0 < record["test_accuracy"]["mean"] < 1
            assert 0 < record["convnet_accuracy"]["mean"] < 1
    assert "coreset_size=20" in (workdir / "table.md").read_text()
    assert (workdir / "figures" / "convnet_accuracy.png").read_bytes().startswith(PNG)
