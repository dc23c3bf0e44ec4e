"""The command line as users run it: real processes, real files."""

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pbcs_jax.experiments import config as config_lib

ROOT = Path(__file__).parents[1]
PNG = b"\x89PNG\r\n"


def command(*arguments):
    return [sys.executable, str(ROOT / "launch.py"), *map(str, arguments)]


def environment():
    """One device, as a user's machine has."""
    return {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"COLUMNS": "200"}


def launch(*arguments, **options):
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), cwd=ROOT, **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "noise"
    done = launch("--config=configs/mnist_noise.py:smoke", f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    return workdir, done


def test_the_workdir_holds_all_that_is_promised(finished):
    workdir, done = finished
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["experiment"] == "summarization" and summary["coreset_size"] == 20
    assert summary["dataset"] == {
        "name": "mnist",
        "source": "bundled",
        "num_train": 200,
        "num_test": 1000,
    }
    for name in ("pbcs", "uniform"):
        accuracy = summary["methods"][name]["test_accuracy"]
        assert len(accuracy["runs"]) == 2 and summary["methods"][name]["seconds"] >= 0
        assert accuracy["mean"] == pytest.approx(np.mean(accuracy["runs"]))
        assert 0 <= summary["methods"][name]["wrong_labels"] <= 1
    with np.load(workdir / "coreset.npz", allow_pickle=False) as coreset:
        assert coreset["indices"].shape == coreset["labels"].shape == coreset["rows"].shape == (20,)
        top = np.sort(coreset["probabilities"])[-20:]
        np.testing.assert_array_equal(np.sort(coreset["probabilities"][coreset["indices"]]), top)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 7))
    assert all(np.isfinite(line["outer_loss"]) for line in lines)
    assert list((workdir / "tensorboard").glob("events*"))
    figures = {p.stem: p.read_bytes() for p in (workdir / "figures").iterdir()}
    assert set(figures) == {
        "accuracy_by_method",
        "outer_loss",
        "probabilities",
        "classes_of_the_coreset",
        "the_coreset",
    }
    assert all(content.startswith(PNG) for content in figures.values())
    page = (workdir / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 5 and "pbcs" in page
    record = json.loads((workdir / "config.json").read_text())
    assert record["config"]["noise"] == {"kind": "symmetric", "rate": 0.5}
    assert "jax" in record["versions"] and record["devices"]
    assert "Selecting" in done.stdout and "pbcs" in done.stdout and "±" in done.stdout
    assert not list(workdir.rglob("*.tmp"))


@pytest.mark.parametrize("file", sorted(p.name for p in (ROOT / "configs").glob("*.py")))
def test_every_preset_of_every_config_is_sound(file, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module(f"configs.{Path(file).stem}")
    assert set(module.PRESETS) >= {"default", "paper", "smoke"}
    for preset in module.PRESETS:
        config_lib.check(module.get_config(preset))


def test_a_finished_run_is_shown_again_and_not_repeated(finished):
    workdir, _ = finished
    before = {p: p.stat().st_mtime_ns for p in workdir.rglob("*") if p.is_file()}
    again = launch("--config=configs/mnist_noise.py:smoke", f"--workdir={workdir}")
    assert again.returncode == 0 and "finished" in again.stdout and "pbcs" in again.stdout
    assert {p: p.stat().st_mtime_ns for p in workdir.rglob("*") if p.is_file()} == before


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
def uninterrupted(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole") / "run"
    done = launch(*LONGER, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    return workdir


def test_killed_three_times_it_ends_with_the_same_bits(uninterrupted, tmp_path):
    workdir = tmp_path / "run"
    rng = random.Random()
    moments = [(n, rng.uniform(0, 0.3)) for n in sorted(rng.sample(range(2, 30), 3))]
    print("killed at", moments)
    assert all([kill_after(workdir, lines, wait) for lines, wait in moments])
    done = launch(*LONGER, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    for name in ("coreset.npz", "metrics.jsonl"):
        assert (workdir / name).read_bytes() == (uninterrupted / name).read_bytes(), name


@pytest.mark.parametrize("how", ["half", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(uninterrupted, tmp_path, how):
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
    done = launch(*LONGER, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert f"checkpoint {steps[-1]}" in done.stderr
    assert (workdir / "coreset.npz").read_bytes() == (uninterrupted / "coreset.npz").read_bytes()


def write_npz(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.normal(size=(60, 5)).astype(np.float32),
        "y_train": np.arange(60) % 3,
        "x_test": rng.normal(size=(20, 5)).astype(np.float32),
        "y_test": np.arange(20) % 3,
    } | changes
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})


def test_your_own_file(tmp_path):
    path = tmp_path / "mine.npz"
    write_npz(path)
    done = launch(
        "--config=configs/npz.py:smoke",
        f"--config.data.path={path}",
        "--config.coreset_size=9",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["dataset"] == {"name": "mine", "source": "npz", "num_train": 60, "num_test": 20}


SMOKE = "--config=configs/mnist.py:smoke"
NPZ = "--config=configs/npz.py:smoke"
BAD = {
    "K = 0": ([SMOKE, "--config.coreset_size=0"], "coreset_size is 0"),
    "K < 0": ([SMOKE, "--config.coreset_size=-3"], "coreset_size is -3"),
    "K > n": ([SMOKE, "--config.coreset_size=201"], "at most 200"),
    "method": ([SMOKE, "--config.methods=('pbcs','magic')"], "'magic'"),
    "estimator": ([SMOKE, "--config.selection.estimator=magic"], "'magic'"),
    "source": ([SMOKE, "--config.data.source=magic"], "'magic'"),
    "model": ([SMOKE, "--config.model.name=magic"], "'magic'"),
    "judge": ([SMOKE, "--config.evaluation.model=magic"], "'magic'"),
    "transfer": ([SMOKE, "--config.evaluation.transfer=('magic',)"], "'magic'"),
    "epochs": ([SMOKE, "--config.evaluation.epochs=-1"], "epochs is -1"),
    "sweep": ([SMOKE, "--config.sweep.points=('coreset_sise=3',)"], "coreset_sise"),
    "experiment": ([SMOKE, "--config.experiment=magic"], "'magic'"),
    "key": ([SMOKE, "--config.corest_size=5"], "corest_size"),
    "type": ([SMOKE, "--config.coreset_size=many"], "coreset_size"),
    "preset": (["--config=configs/mnist.py:magic"], "'magic'"),
    "no such config": (["--config=configs/magic.py"], "magic"),
    "no config": ([], "--config"),
    "rate above 1": ([SMOKE, "--config.noise.kind=symmetric", "--config.noise.rate=1.5"], "1.5"),
    "rate below 0": ([SMOKE, "--config.noise.kind=pairwise", "--config.noise.rate=-0.1"], "-0.1"),
    "noise kind": ([SMOKE, "--config.noise.kind=magic"], "'magic'"),
    "imbalance": ([SMOKE, "--config.imbalance.factor=0.5"], "0.5"),
    "one mask": ([SMOKE, "--config.selection.num_masks=1"], "num_masks is 1"),
    "candidates": ([SMOKE, "--config.data.num_candidates=100000"], "100000"),
    "learning rate": ([SMOKE, "--config.inner.learning_rate=0.0"], "learning_rate"),
    "diverging": ([SMOKE, "--config.inner.learning_rate=1e12"], "inner.learning_rate"),
    "no file": ([NPZ, "--config.data.path=nowhere.npz"], "nowhere.npz"),
}


def assert_one_line(done, said):
    assert done.returncode not in (0, None) and done.returncode > 0
    assert "Traceback" not in done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0], done.stderr


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_leaves_no_result(name, tmp_path):
    arguments, said = BAD[name]
    workdir = tmp_path / "run"
    assert_one_line(launch(*arguments, f"--workdir={workdir}"), said)
    for final in ("coreset.npz", "summary.json", "report.html"):
        assert not (workdir / final).exists()
    assert not list(tmp_path.rglob("*.tmp"))


def damaged(path):
    write_npz(path)
    path.write_bytes(path.read_bytes()[:1000])


NAN = np.full((60, 5), np.nan, np.float32)
BAD_FILES = {
    "wrong keys": (lambda p: write_npz(p, y_test=None), "y_test"),
    "lengths": (lambda p: write_npz(p, y_train=np.arange(59) % 3), "59"),
    "nan": (lambda p: write_npz(p, x_train=NAN), "NaN"),
    "labels": (lambda p: write_npz(p, y_test=np.full(20, 7)), "7"),
    "objects": (lambda p: write_npz(p, x_train=np.array([{}] * 60)), "pickle"),
    "cut": (damaged, "bad.npz"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_line(name, tmp_path):
    make, said = BAD_FILES[name]
    make(tmp_path / "bad.npz")
    done = launch(
        NPZ, f"--config.data.path={tmp_path / 'bad.npz'}", f"--workdir={tmp_path / 'run'}"
    )
    assert_one_line(done, said)


def test_a_workdir_of_another_config_is_left_alone(finished):
    workdir, _ = finished
    before = (workdir / "coreset.npz").read_bytes()
    done = launch(
        "--config=configs/mnist_noise.py:smoke", "--config.seed=5", f"--workdir={workdir}"
    )
    assert_one_line(done, "seed")
    assert (workdir / "coreset.npz").read_bytes() == before


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    assert_one_line(launch(SMOKE, f"--workdir={tmp_path}"), "not empty")


def test_no_write_permission(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    # Root may write anywhere: then a path below a file stands for the folder that cannot be made.
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        locked = tmp_path / "file"
    assert_one_line(launch(SMOKE, f"--workdir={locked / 'run'}"), "workdir")


@pytest.mark.parametrize(("objective", "steps"), [("kernel", 7), ("kernel_then_network", 6)])
def test_the_kernel_selects_from_the_command_line(tmp_path, objective, steps):
    done = launch(
        "--config=configs/mnist_imbalance.py:smoke",
        f"--config.selection.objective={objective}",
        "--config.kernel.outer_steps=7",
        "--config.kernel.num_masks=4",
        "--config.imbalance.factor=5",
        "--config.methods=('pbcs', 'whole')",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    assert "kernel on auto features" in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    found = summary["methods"]["pbcs"]
    assert found["largest_class"] <= 2 * found["smallest_class"]
    assert summary["methods"]["whole"]["coreset_size"] == summary["dataset"]["num_train"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == steps


SWEEP = (
    "--config=configs/mnist_transfer.py:smoke",
    "--config.methods=('pbcs', 'uniform', 'kcenter', 'whole')",
    "--config.sweep.points=('coreset_size=10', 'coreset_size=20')",
    "--config.evaluation.model=mlp",
    "--config.evaluation.transfer=('convnet',)",
    "--config.evaluation.epochs=2",
)


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
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

    done = launch(*SWEEP, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    summary = json.loads((workdir / "summary.json").read_text())
    assert list(summary["points"]) == ["coreset_size=10", "coreset_size=20"]
    for point in summary["points"].values():
        assert set(point["methods"]) == {"pbcs", "uniform", "kcenter", "whole"}
        for record in point["methods"].values():
            assert 0 < record["test_accuracy"]["mean"] < 1
            assert 0 < record["convnet_accuracy"]["mean"] < 1
    assert "coreset_size=20" in (workdir / "table.md").read_text()
    assert (workdir / "figures" / "convnet_accuracy.png").read_bytes().startswith(PNG)


def test_cifar10_from_a_file(tmp_path):
    rng = np.random.default_rng(0)
    write_npz(
        tmp_path / "cifar10.npz",
        x_train=rng.integers(0, 256, (200, 32, 32, 3), np.uint8),
        y_train=(np.arange(200) % 10)[:, None],
        x_test=rng.integers(0, 256, (20, 32, 32, 3), np.uint8),
        y_test=(np.arange(20) % 10)[:, None],
    )
    done = launch(
        "--config=configs/cifar10_noise.py:smoke",
        "--config.data.source=npz",
        f"--config.data.path={tmp_path / 'cifar10.npz'}",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["dataset"]["name"] == "cifar10" and summary["coreset_size"] == 20
