"""Feature selection from the command line, and what it leaves behind."""

import json

import numpy as np
import pytest
from forked import forked  # noqa: F401 (a fixture)

from pbcs_jax.errors import UserError
from pbcs_jax.experiments.features import EXPERIMENT, patches

CHANGES = ("--config.inputs.patch=4", "--config.inputs.noise=2.5", "--config.inputs.smooth=0.7")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, forked):  # noqa: F811
    workdir = tmp_path_factory.mktemp("features") / "run"
    flags = ("--config=configs/mnist_features.py:smoke", f"--workdir={workdir}")
    done = forked(*flags, *CHANGES)
    assert done.returncode == 0, done.stderr
    return workdir, done


def test_the_workdir_holds_all_that_is_promised(finished):
    workdir, done = finished
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["experiment"] == "features"
    assert list(summary["methods"]) == list(EXPERIMENT.methods)
    assert summary["num_inputs"] == 20 and summary["num_choices"] == 49
    chosen = np.load(workdir / "coreset.npz", allow_pickle=False)
    assert chosen["indices"].shape == (20,) and chosen["probabilities"].shape == (49,)
    for name in ("the_chosen_inputs.png", "probabilities_over_time.gif", "outer_loss.png"):
        assert (workdir / "figures" / name).stat().st_size > 500
    page = (workdir / "report.html").read_text()
    assert "data:image/gif;base64," in page and "mutual_information" in page
    assert "mutual_information" in done.stdout and "20 of 49 patches" in done.stdout


def test_a_run_without_its_summary_comes_to_the_same_end(finished, forked):  # noqa: F811
    """As after a kill: what is there is used, what is missing is made again."""
    workdir, _ = finished
    before = json.loads((workdir / "summary.json").read_text())
    (workdir / "summary.json").unlink()
    (workdir / "methods" / "pbcs.json").unlink()
    (workdir / "coreset.npz").unlink()
    flags = ("--config=configs/mnist_features.py:smoke", f"--workdir={workdir}")
    done = forked(*flags, *CHANGES)
    assert done.returncode == 0, done.stderr
    after = json.loads((workdir / "summary.json").read_text())
    for name, record in before["methods"].items():
        assert after["methods"][name]["test_accuracy"] == record["test_accuracy"]


def test_a_table(tmp_path, forked):  # noqa: F811
    flags = ("--config=configs/breast_cancer_features.py:smoke", f"--workdir={tmp_path / 'run'}")
    done = forked(*flags)
    assert done.returncode == 0, done.stderr
    assert "5 of 30 inputs" in done.stdout
    assert (tmp_path / "run" / "figures" / "probabilities_at_the_end.png").exists()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--config.num_inputs=900", "at most 784"),
        ("--config.coreset_size=5", "use 'num_inputs'"),
        ("--config.data.num_candidates=5", "use 'data.num_samples'"),
        ("--config.inputs.patch=5", "does not divide"),
        ("--config.inputs.noise=-1.0", "inputs.noise is -1.0"),
        ("--config.inputs.smooth=-1.0", "inputs.smooth is -1.0"),
        ("--config.selection.objective=kernel_then_network", "use one of network, kernel"),
        ("--config.methods=('pbcs','herding')", "method is 'herding'"),
    ],
)
def test_mistakes_are_named(tmp_path, forked, flag, said):  # noqa: F811
    flags = ("--config=configs/mnist_features.py:smoke", f"--workdir={tmp_path / 'run'}")
    done = forked(*flags, flag)
    assert done.returncode == 2 and said in done.stderr
    assert "Traceback" not in done.stderr


def test_patches_of_colour_pictures_hold_all_channels():
    found = patches((4, 4, 3), 2)
    assert found.shape == (4, 4, 3) and np.bincount(found.ravel()).tolist() == [12] * 4


def test_a_table_has_no_patches():
    with pytest.raises(UserError, match="does not divide"):
        patches((30,), 2)
