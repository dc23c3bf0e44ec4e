"""A folder of npy files on the command line: only what is chosen is read, by one process or two."""

import json

import numpy as np
import pytest
from command_line import assert_one_line
from forked import forked  # noqa: F401 (a fixture)

from pbcs_jax import data
from pbcs_jax.data import npy_source

N = 50_000
RUN = (
    "--config=configs/npy.py:smoke",
    "--config.methods=('pbcs', 'uniform', 'stratified')",
    "--config.noise.kind=symmetric",
    "--config.noise.rate=0.2",
    "--config.data.num_validation=12",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Grey pictures without an axis for the channel."""
    place = tmp_path_factory.mktemp("npy") / "pictures"
    place.mkdir()
    rng = np.random.default_rng(0)
    for part, n in (("train", N), ("test", 60)):
        y = np.arange(n) % 3
        x = rng.integers(0, 100, (n, 6, 6)).astype(np.uint8) + (50 * y[:, None, None]).astype("u1")
        np.save(place / f"x_{part}.npy", x)
        np.save(place / f"y_{part}.npy", np.array(["a", "b", "c"])[y])
    return place


def test_a_run_of_a_mapped_file(folder, tmp_path, forked):  # noqa: F811
    done = forked(*RUN, f"--config.data.path={folder}", f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["dataset"] == {
        "name": "pictures",
        "source": "npy",
        "num_train": N - 12,
        "num_test": 60,
    }
    assert set(summary["methods"]) == {"pbcs", "uniform", "stratified"}
    with np.load(tmp_path / "run" / "coreset.npz") as found:
        assert found["probabilities"].shape == (N - 12,) and len(found["indices"]) == 10
        assert set(found["labels"]) <= {"a", "b", "c"}
        rows = found["rows"]
    assert (tmp_path / "run" / "figures" / "the_coreset.png").exists()
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "of 10000 rows" in json.dumps(record)
    assert len(set(rows)) == 10 and rows.max() < N


def test_a_mapped_file_is_the_problem_that_its_array_is(folder, tmp_path):
    arrays = {f.stem: np.load(f) for f in folder.glob("*.npy")}
    np.savez(tmp_path / "pictures.npz", **arrays)
    options = {"seed": 3, "num_candidates": 500, "num_validation": 30, "noise_rate": 0.3}
    options |= {"noise_kind": "symmetric", "imbalance_factor": 4.0}
    whole = data.make_problem(data.load("npz", "", str(tmp_path / "pictures.npz")), **options)
    mapped = data.make_problem(data.load("npy", "", str(folder)), **options)
    order = np.argsort(whole.indices)
    assert mapped.indices.tolist() == whole.indices[order].tolist()
    assert mapped.y.tolist() == whole.y[order].tolist()
    assert mapped.y_true.tolist() == whole.y_true[order].tolist()
    some = np.array([0, 5, 5, 200])
    assert mapped.images[some].tolist() == whole.images[order[some]].tolist()
    np.testing.assert_allclose(mapped.x[some], whole.x[order[some]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mapped.x_val, whole.x_val, rtol=1e-5, atol=1e-6)
    assert mapped.y_val.tolist() == whole.y_val.tolist()


def test_no_pass_over_x_at_the_start(folder, monkeypatch):
    seen = []
    take = npy_source.Rows.__getitem__
    monkeypatch.setattr(
        npy_source.Rows, "__getitem__", lambda rows, i: seen.append(len(i)) or take(rows, i)
    )
    dataset = data.load("npy", "", str(folder))
    data.make_problem(dataset, seed=0)
    data.fingerprint(dataset)
    assert 0 < max(seen) <= 10_000 and sum(seen) < 2 * N  # a row passes through three of them


BAD = {
    "no folder": (["--config.data.path=nowhere"], "data folder 'nowhere' is no folder: give a"),
    "no path": ([], "data path is '' for source 'npy': give a folder"),
    "a method": (["--config.methods=('pbcs', 'greedy')"], "method is 'greedy': use one of pbcs"),
    "kernel": (["--config.selection.objective=kernel"], "objective is Kernel, and x gives rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused(folder, tmp_path, forked, name):  # noqa: F811
    flags, said = BAD[name]
    given = [] if "path" in name or "folder" in name else [f"--config.data.path={folder}"]
    done = forked("--config=configs/npy.py:smoke", *given, *flags, f"--workdir={tmp_path / 'run'}")
    assert_one_line(done, said)
