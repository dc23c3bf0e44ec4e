"""Continual learning and streaming in this process: records, resumption, the page."""

import io
import json

import numpy as np
import pytest
from pbcs_jax.configs import permmnist, streaming_permmnist
from rich.console import Console

from pbcs_jax.errors import UserError
from pbcs_jax.experiments import EXPERIMENTS, lifelong


def run(config, folder):
    console = Console(file=io.StringIO(), width=200)
    return EXPERIMENTS[config.experiment](config, str(folder), console)


def record(folder, name):
    return json.loads((folder / "methods" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("continual") / "run"
    return folder, run(permmnist.get_config("smoke"), folder)


def test_the_record_has_all_that_a_table_needs(finished):
    folder, summary = finished
    assert summary["experiment"] == "continual" and summary["memory_size"] == 20
    assert set(summary["methods"]) == {"pbcs", "uniform", "cbrs", "der++"}
    for name, found in summary["methods"].items():
        own = record(folder, name)
        matrix = np.array(own["matrix"])
        assert matrix.shape == (2, 2, 2)  # seeds, after task, on task
        np.testing.assert_allclose(found["test_accuracy"]["runs"], matrix[:, -1].mean(1), atol=1e-5)
        assert np.all(matrix[:, 0, 1] == 0)  # not tested before it is learnt
        lost = 100 * np.mean(matrix[:, 0, 0] - matrix[:, 1, 0])
        assert found["forgetting"] == pytest.approx(lost, abs=0.01)
        assert all(len(stored) == 20 for stored in own["coresets"])
    places = np.array(record(folder, "pbcs")["places"])
    assert np.all(places[0] < 60) and np.sum(places[1] < 60) == np.sum(places[1] >= 60) == 10
    # After the second task the first one's are cut to the first of their order.
    assert set(places[1][places[1] < 60]) < set(places[0])


def test_the_page_shows_what_is_remembered(finished):
    folder, _ = finished
    page = (folder / "report.html").read_text()
    for title in ("Accuracy over time", "Forgetting matrix", "Memory over time"):
        assert f"<h2>{title}</h2>" in page
    assert "<dt>Outside of the protocol</dt><dd>der++</dd>" in page
    assert "Continual learning on mnist" in page and "smoke run" in page


def test_killed_after_a_task_it_ends_with_the_same_bits(finished, tmp_path, monkeypatch):
    whole, _ = finished
    real, saved = lifelong.save, []

    def kill(path, state):
        real(path, state)
        saved.append(path)
        if len(saved) in (1, 4):  # in the first and in the second method
            raise KeyboardInterrupt

    monkeypatch.setattr(lifelong, "save", kill)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(permmnist.get_config("smoke"), tmp_path / "run")
    run(permmnist.get_config("smoke"), tmp_path / "run")
    assert len(saved) == 8  # none of the steps twice
    for name in ("pbcs", "uniform", "cbrs", "der++"):
        first, second = record(whole, name), record(tmp_path / "run", name)
        for key in ("matrix", "places", "by_beta", "coresets"):
            assert first[key] == second[key], (name, key)


def test_held_out_data_choose_beta_and_selected_data_are_fewer(finished, tmp_path):
    config = permmnist.get_config("smoke")
    config.methods = ("uniform",)
    config.continual.betas = (0.01, 100.0)
    config.continual.train_on = "selected"
    summary = run(config, tmp_path / "run")
    own = record(tmp_path / "run", "uniform")
    held_out = {b: r["held_out_accuracy"] for b, r in own["by_beta"].items()}
    best = max(held_out, key=held_out.get)
    found = summary["methods"]["uniform"]
    assert found["beta"] == float(best)
    assert found["test_accuracy"]["runs"] == own["by_beta"][best]["test_accuracy"]
    # What beta 0.01 gives does not depend on what goes beside it, but on what is trained on.
    before = record(finished[0], "uniform")["by_beta"]["0.01"]["test_accuracy"]
    assert own["by_beta"]["0.01"]["test_accuracy"] != before


def test_a_stream_by_every_kind_of_memory(tmp_path):
    summary = run(streaming_permmnist.get_config("smoke"), tmp_path / "run")
    for name, found in summary["methods"].items():
        own = record(tmp_path / "run", name)
        assert np.array(own["matrix"]).shape == (2, 2, 2), name
        assert 0 <= found["wrong_labels"] <= 1 and len(own["coresets"][0]) == 20
    # The noise is 20 %: a memory that nobody guards has it too.
    assert summary["methods"]["uniform"]["wrong_labels"] > 0.05


def test_a_memory_that_does_not_divide_into_slots_is_refused(tmp_path):
    config = streaming_permmnist.get_config("smoke")
    config.memory_size = 21
    with pytest.raises(UserError, match="memory_size is 21: use a multiple of"):
        run(config, tmp_path / "run")
