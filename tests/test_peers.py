"""The benchmark against other packages, as far as it needs none of them."""

import doctest
import json
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from benchmarks import peer_methods, peer_problems, peer_tables, peers
from pbcs_jax.baselines import Candidates


@pytest.fixture(autouse=True)
def parsed():
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["peers"])


@pytest.fixture
def few(monkeypatch):
    """Three methods, in place of all."""
    names = ("uniform", "stratified", peer_methods.KERNEL)
    for module in (peer_methods, peers):
        monkeypatch.setattr(module, "SAMPLES", {n: peer_methods.SAMPLES[n] for n in names})
        monkeypatch.setattr(module, "INPUTS", {"uniform": peer_methods.INPUTS["uniform"]})
    return names


def candidates():
    y = np.array([0] * 12 + [1] * 6 + [2] * 2)
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32) + y[:, None]
    return Candidates(x, y, 3)


def test_cells_of_wine_are_measured_saved_and_resumed(few, tmp_path):
    out = tmp_path / "peers.json"
    *tables, inputs, kernel, auto = peers.run(peers.Results(str(out)), ["wine"], 1, 1, [])
    cells = json.loads(out.read_text())["cells"]
    assert len(cells) == 4 and "validation set alone" in cells["wine, 20 of all, noise, 1 networks"]
    for cell, by_method in cells.items():
        assert set(few) <= set(by_method) or "inputs" in cell
        for row in (by_seed["0"] for by_seed in by_method.values()):
            assert 0 < row["size"] <= 30 and 0 < row["network"] <= 1 and 0 < row["logistic"] <= 1
    assert len(tables) == 2 and all(table.count("**") >= 4 for table in tables)
    assert "of 6 cells" in kernel and "not measured" in auto and "not measured" in inputs

    before = out.stat().st_mtime_ns
    again = list(peers.run(peers.Results(str(out)), ["wine"], 1, 1, []))
    assert again == [*tables, inputs, kernel, auto]
    assert out.stat().st_mtime_ns == before  # nothing was measured again


def test_a_package_that_is_not_there_gives_a_row_that_says_so():
    def missing(cell):
        return peer_methods.load("no_such_package").choose(cell)

    cell = peer_methods.Cell(candidates(), 6, 0, {})
    row = peers.attempt(lambda chosen: {}, peer_methods.Method(missing), cell)
    assert row == {"missing": "not installed"}
    found = {"a, 6 of 20, clean": {"uniform": {"0": {"network": 0.5, "logistic": 0.5}}}}
    table = peer_tables.table(found, list(found), ["uniform", "absent"], 1)
    assert "| absent | not installed | not installed |  |  |" in table


def test_a_method_that_fails_or_repeats_itself_is_written_down():
    cell = peer_methods.Cell(candidates(), 6, 0, {})
    twice = peer_methods.Method(lambda cell: np.array([1, 1, 2]))
    row = peers.attempt(lambda chosen: {}, twice, cell)
    assert row == {"failed": "ValueError: 3 indices, 2 of them distinct"}


@pytest.mark.parametrize("near_miss", [False, True])
def test_under_sampling_reaches_the_size(near_miss):
    cell = peer_methods.Cell(candidates(), 10, 0, {})
    chosen = peer_methods.under_sampled(cell, near_miss)
    assert np.bincount(cell.y[chosen]).tolist() == [4, 4, 2]


def test_choosing_by_class_spreads_the_size_evenly():
    cell = peer_methods.Cell(candidates(), 9, 0, {})
    first = lambda rows, size, seed: np.arange(size)  # noqa: E731
    chosen = peer_methods._of_each_class(first, cell)
    assert chosen.tolist() == [0, 1, 2, 3, 12, 13, 14, 16 + 2, 16 + 3]


def test_first_is_the_best_mean_and_one_standard_error_is_near():
    rows = {"A": [0.9, 0.8], "B": [0.84, 0.78], "C": [0.7, 0.7], peer_tables.VALIDATION: [1, 1]}
    cell = {
        m: {str(i): {"network": v, "logistic": v} for i, v in enumerate(values)}
        for m, values in rows.items()
    }
    found = {"a, 6 of 20, noise": cell}
    verdicts = [peer_tables.verdict(found, list(found), m, 2) for m in ("A", "B", "C")]
    assert ["2 of 2" in v for v in verdicts] == [True, True, False]
    table = peer_tables.table(found, list(found), list(rows), 2)
    assert "| A | **85.0 ± 5.0** |" in table and "| validation set alone | 100.0 ± 0.0 |" in table


def test_small_pictures_are_enlarged_for_the_convnet():
    assert peer_problems.read("digits", 0).x_train.shape[1:] == (16, 16, 1)


def test_a_file_of_something_else_is_refused(tmp_path):
    out = Path(tmp_path / "peers.json")
    out.write_text("[]")
    with pytest.raises(peers.UserError, match="which holds no results of this benchmark"):
        peers.Results(str(out))


def test_its_examples_are_right():
    assert doctest.testmod(peer_tables).failed == 0
