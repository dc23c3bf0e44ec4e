"""The command line as users run it: real processes, real files."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import PNG, ROOT, assert_one_line, launch, write_npz
from forked import forked  # noqa: F401 (a fixture)

from pbcs_jax.experiments import config as config_lib


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
    assert page.count('<img alt="') - page.count('<td><img alt="') == 5 and "pbcs" in page
    assert f"python launch.py --config=configs/mnist_noise.py:smoke --workdir={workdir}" in page
    record = json.loads((workdir / "config.json").read_text())
    assert record["config"]["noise"] == {"kind": "symmetric", "rate": 0.5}
    assert "jax" in record["versions"] and record["devices"]
    assert record["command"].startswith("python launch.py --config=")
    assert "pbcs: selected in" in done.stdout and "pbcs" in done.stdout and "±" in done.stdout
    assert not list(workdir.rglob("*.tmp"))


@pytest.mark.parametrize("file", sorted(p.name for p in (ROOT / "configs").glob("[!_]*.py")))
def test_every_preset_of_every_config_is_sound(file, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module(f"pbcs_jax.configs.{Path(file).stem}")
    assert set(module.PRESETS) >= {"default", "paper", "smoke"}
    for preset in module.PRESETS:
        config_lib.check(module.get_config(preset))


@pytest.mark.parametrize("n", [1000, 20_000])
def test_the_kernel_has_the_same_defaults_from_python_and_from_the_command_line(n):
    for template in (config_lib.summarization, config_lib.features):
        config = template()
        own = config_lib.kernel(config).loop_settings(n, config_lib.size(config))
        assert config_lib.kernel_loop(config, n) == own


def test_a_finished_run_is_shown_again_and_not_repeated(finished, forked):  # noqa: F811
    workdir, _ = finished
    before = {p: p.stat().st_mtime_ns for p in workdir.rglob("*") if p.is_file()}
    again = forked("--config=configs/mnist_noise.py:smoke", f"--workdir={workdir}")
    assert again.returncode == 0 and "finished" in again.stdout and "pbcs" in again.stdout
    assert {p: p.stat().st_mtime_ns for p in workdir.rglob("*") if p.is_file()} == before


def test_a_workdir_of_another_config_is_left_alone(finished, forked):  # noqa: F811
    workdir, _ = finished
    before = (workdir / "coreset.npz").read_bytes()
    done = forked(
        "--config=configs/mnist_noise.py:smoke", "--config.seed=5", f"--workdir={workdir}"
    )
    assert_one_line(done, "seed")
    assert (workdir / "coreset.npz").read_bytes() == before


def test_your_own_file_which_a_finished_run_needs_no_more(tmp_path, forked):  # noqa: F811
    path = tmp_path / "mine.npz"
    write_npz(path)
    flags = (
        "--config=configs/npz.py:smoke",
        f"--config.data.path={path}",
        "--config.coreset_size=9",
        "--config.selection.objective=kernel",
        f"--workdir={tmp_path / 'run'}",
    )
    done = forked(*flags)
    assert done.returncode == 0, done.stderr
    path.unlink()
    again = forked(*flags)
    assert again.returncode == 0 and "finished" in again.stdout, again.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["dataset"] == {"name": "mine", "source": "npz", "num_train": 60, "num_test": 20}


@pytest.mark.parametrize(
    ("objective", "features", "steps"),
    [("kernel", "trained_ntk", 7), ("kernel_then_network", "auto", 6)],
)
def test_the_kernel_selects_from_the_command_line(tmp_path, forked, objective, features, steps):  # noqa: F811
    done = forked(
        "--config=configs/mnist_imbalance.py:smoke",
        f"--config.selection.objective={objective}",
        f"--config.kernel.embeddings={features}",
        "--config.kernel.outer_steps=7",
        "--config.kernel.num_masks=4",
        "--config.imbalance.factor=5",
        "--config.methods=('pbcs', 'whole')",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    assert f"kernel on {features} embeddings" in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    found = summary["methods"]["pbcs"]
    assert found["largest_class"] <= 2 * found["smallest_class"]
    assert summary["methods"]["whole"]["coreset_size"] == summary["dataset"]["num_train"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == steps


def test_cifar10_from_a_file(tmp_path, forked):  # noqa: F811
    rng = np.random.default_rng(0)
    write_npz(
        tmp_path / "cifar10.npz",
        x_train=rng.integers(0, 256, (200, 32, 32, 3), np.uint8),
        y_train=(np.arange(200) % 10)[:, None],
        x_test=rng.integers(0, 256, (20, 32, 32, 3), np.uint8),
        y_test=(np.arange(20) % 10)[:, None],
    )
    done = forked(
        "--config=configs/cifar10_noise.py:smoke",
        "--config.data.source=npz",
        f"--config.data.path={tmp_path / 'cifar10.npz'}",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["dataset"]["name"] == "cifar10" and summary["coreset_size"] == 20
