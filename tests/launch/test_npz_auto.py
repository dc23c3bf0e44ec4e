"""`configs/npz.py`, whose default compares several ways to choose: a run, and one that goes on."""

import json

import numpy as np
from command_line import write_npz
from forked import forked  # noqa: F401 (a fixture)


def test_a_plan_and_the_size_it_found_are_kept_and_repeated(tmp_path, forked):  # noqa: F811
    write_npz(tmp_path / "data.npz")
    arguments = [
        "--config=configs/npz.py:smoke",
        f"--config.data.path={tmp_path / 'data.npz'}",
        "--config.coreset_size=0",
        "--config.evaluation.num_seeds=1",
        f"--workdir={tmp_path / 'run'}",
    ]
    refused = forked(*arguments, "--config.methods=('uniform','pbcs')")
    assert refused.returncode == 2 and "coreset_size is 0" in refused.stderr
    arguments.append("--config.methods=('pbcs','uniform')")
    first = forked(*arguments)
    assert first.returncode == 0, first.stderr
    run = tmp_path / "run"
    choice = json.loads((run / "choice.json").read_text())
    assert choice["judged"][0]["name"] == choice["winner"]
    page = (run / "report.html").read_text()
    assert "What was compared" in page and "Quality against size" in page
    size = choice["sizes"]["size"]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["coreset_size"] == summary["methods"]["uniform"]["coreset_size"] == size
    with np.load(run / "coreset.npz") as file:
        before = dict(file)
    assert len(before["indices"]) == size
    # As if it had been killed after the plan was made: the same plan, whatever the clock shows.
    for name in ("coreset.npz", "summary.json", "methods/pbcs.json", "report.html"):
        (run / name).unlink()
    again = forked(*arguments)
    assert again.returncode == 0, again.stderr
    assert json.loads((run / "choice.json").read_text())["plan"] == choice["plan"]
    with np.load(run / "coreset.npz") as file:
        assert sorted(file) == sorted(before)
        for name, value in before.items():
            np.testing.assert_array_equal(file[name], value)
