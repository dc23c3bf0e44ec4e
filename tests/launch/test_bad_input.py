"""Bad input gets one line that says what to do, and loses nothing."""

import os

import numpy as np
import pytest
from command_line import assert_one_line, write_npz
from forked import forked  # noqa: F401 (a fixture)

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
    "exchanges for nothing": (
        [
            SMOKE,
            "--config.selection.objective=kernel_then_network",
            "--config.kernel.exchanges=5",
        ],
        "kernel.exchanges is 5",
    ),
    "renamed key": ([SMOKE, "--config.kernel.features=raw"], "use 'kernel.embeddings'"),
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
    "diverging": ([SMOKE, "--config.inner.learning_rate=1e8"], "inner.learning_rate"),
    "no file": ([NPZ, "--config.data.path=nowhere.npz"], "nowhere.npz"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_leaves_no_result(name, tmp_path, forked):  # noqa: F811
    arguments, said = BAD[name]
    workdir = tmp_path / "run"
    assert_one_line(forked(*arguments, f"--workdir={workdir}"), said)
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
def test_bad_files_get_one_line(name, tmp_path, forked):  # noqa: F811
    make, said = BAD_FILES[name]
    make(tmp_path / "bad.npz")
    done = forked(
        NPZ, f"--config.data.path={tmp_path / 'bad.npz'}", f"--workdir={tmp_path / 'run'}"
    )
    assert_one_line(done, said)


def test_a_folder_of_other_things_is_left_alone(tmp_path, forked):  # noqa: F811
    (tmp_path / "thesis.txt").write_text("precious")
    assert_one_line(forked(SMOKE, f"--workdir={tmp_path}"), "not empty")


def test_no_write_permission(tmp_path, forked):  # noqa: F811
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    # Root may write anywhere: then a path below a file stands for the folder that cannot be made.
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        locked = tmp_path / "file"
    assert_one_line(forked(SMOKE, f"--workdir={locked / 'run'}"), "workdir")
