"""`configs/npz.py`, whose default compares several ways to choose: a run, and one that goes on."""

import json

import numpy as np
from command_line import launch, write_npz


def test_a_plan_is_kept_and_repeated(tmp_path):
    write_npz(tmp_path / "data.npz")
    arguments = [
        "--config=configs/npz.py:smoke",
        f"--config.data.path={tmp_path / 'data.npz'}",
        "--config.evaluation.num_seeds=1",
        f"--workdir={tmp_path / 'run'}",
    ]
    first = launch(*arguments)
    assert first.returncode == 0, first.stderr
    run = tmp_path / "run"
    choice = json.loads((run / "choice.json").read_text())
    assert choice["judged"][0]["name"] == choice["winner"]
    assert "What was compared" in (run / "report.html").read_text()
    with np.load(run / "coreset.npz") as file:
        before = dict(file)
    assert len(before["indices"]) == 10
    # As if it had been killed after the plan was made: the same plan, whatever the clock shows.
    for name in ("coreset.npz", "summary.json", "methods/pbcs.json", "report.html"):
        (run / name).unlink()
    again = launch(*arguments, "--config.time_budget=1.0")
    assert again.returncode == 0, again.stderr
    assert json.loads((run / "choice.json").read_text())["plan"] == choice["plan"]
    with np.load(run / "coreset.npz") as file:
        assert sorted(file) == sorted(before)
        for name, value in before.items():
            np.testing.assert_array_equal(file[name], value)


def test_the_size_is_found_and_given_to_the_others(tmp_path):
    write_npz(tmp_path / "data.npz")
    arguments = [
        "--config=configs/npz.py:smoke",
        f"--config.data.path={tmp_path / 'data.npz'}",
        "--config.coreset_size=0",
        "--config.evaluation.num_seeds=1",
        f"--workdir={tmp_path / 'run'}",
    ]
    refused = launch(*arguments, "--config.methods=('uniform','pbcs')")
    assert refused.returncode == 2 and "coreset_size is 0" in refused.stderr
    run = launch(*arguments, "--config.methods=('pbcs','uniform')")
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "run/choice.json").read_text())["sizes"]["size"]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["coreset_size"] == found
    assert summary["methods"]["uniform"]["coreset_size"] == found
    assert "Quality against size" in (tmp_path / "run/report.html").read_text()
