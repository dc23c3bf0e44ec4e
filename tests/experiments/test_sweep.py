"""Points of a sweep, and what is gathered from its runs, with a stand-in for the experiment."""

import io
import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from rich.console import Console

from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.sweep import at_point, parse_point, place, swept


def make_config(points=(), seeds=()):
    config = config_lib.summarization()
    config.sweep.points, config.sweep.seeds = points, seeds
    return config


def pretend(calls):
    """An experiment whose accuracy is made of its config: pbcs gains by size and seed."""

    def run(config, workdir, console):
        calls.append((config.coreset_size, config.noise.rate, config.seed, workdir))
        accuracy = config.coreset_size / 1000 + config.seed / 100
        methods = {
            "pbcs": {"test_accuracy": {"mean": accuracy}, "seconds": 2.0, "wrong_labels": 0.25},
            "uniform": {"test_accuracy": {"mean": 0.1}, "seconds": 0.0, "wrong_labels": 0.5},
        }
        dataset = {"name": "d", "source": "npz", "num_train": 9, "num_test": 3}
        return {"dataset": dataset, "seconds": 1.5, "methods": methods}

    return run


def test_a_point_changes_what_it_names_and_nothing_else():
    config = make_config(("coreset_size=7",), (1,))
    one = at_point(config, "noise.kind=pairwise noise.rate=0.25 imbalance.factor=5", 3)
    before, after = config_lib.flatten(config), config_lib.flatten(one)
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {
        "noise.kind",
        "noise.rate",
        "imbalance.factor",
        "seed",
        "sweep.points",
        "sweep.seeds",
    }
    assert one.imbalance.factor == 5.0 and one.noise.kind == "pairwise"
    assert one.sweep.points == () and config.seed == 0


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("coreset_sise=5", "coreset_sise"),
        ("coreset_size", "KEY=VALUE"),
        ("coreset_size=", "KEY=VALUE"),
        ("coreset_size=many", "int"),
        ("noise.rate=high", "float"),
    ],
)
def test_a_wrong_point_says_what_is_wrong(point, said):
    with pytest.raises(UserError, match=said):
        at_point(make_config(), point, 0)


def test_the_first_number_is_the_place_on_the_axis():
    assert place("noise.kind=pairwise noise.rate=0.2 data.num_candidates=50") == (
        "kind=pairwise",
        "rate",
        0.2,
        "kind=pairwise rate=0.2",
    )
    assert place("coreset_size=50") == ("", "coreset_size", 50, "coreset_size=50")
    assert place("selection.objective=kernel").value == "objective=kernel"
    assert place("").label == "all"
    assert parse_point("a.b=('x',)") == {"a.b": ("x",)}


def test_without_points_and_seeds_there_is_one_run(tmp_path):
    calls = []
    swept(pretend(calls))(make_config(), str(tmp_path / "run"), Console(file=io.StringIO()))
    assert [call[3] for call in calls] == [str(tmp_path / "run")]


def test_all_points_and_seeds_are_run_and_gathered(tmp_path):
    calls, console = [], Console(file=io.StringIO(), width=120)
    points = ("coreset_size=100", "coreset_size=200", "noise.kind=pairwise noise.rate=0.5")
    config = make_config(points, (1, 3))
    summary = swept(pretend(calls))(config, str(tmp_path / "s"), console)
    assert [call[:3] for call in calls] == [
        *[(100, 0.0, 1), (100, 0.0, 3), (200, 0.0, 1), (200, 0.0, 3)],
        *[(100, 0.5, 1), (100, 0.5, 3)],
    ]
    assert len({call[3] for call in calls}) == 6
    found = summary["points"]["coreset_size=200"]["methods"]["pbcs"]
    assert found["test_accuracy"]["runs"] == pytest.approx([0.21, 0.23])
    assert found["test_accuracy"]["mean"] == pytest.approx(0.22)
    assert found["test_accuracy"]["std"] == pytest.approx(np.std([0.21, 0.23]))
    assert found["wrong_labels"]["mean"] == 0.25 and summary["seconds"] == 9.0
    assert json.loads((tmp_path / "s" / "summary.json").read_text()) == summary
    table = (tmp_path / "s" / "table.md").read_text()
    assert "| pbcs | **12.00 ± 1.00** | **22.00 ± 1.00** |" in table
    assert "22.00 ± 1.00" in console.file.getvalue()
    pictures = sorted(p.name for p in (tmp_path / "s" / "figures").iterdir())
    assert pictures == [
        "test_accuracy__coreset_size.png",
        "test_accuracy__kind_pairwise.png",
        "wrong_labels__coreset_size.png",
        "wrong_labels__kind_pairwise.png",
    ]
    page = (tmp_path / "s" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "<dt>Chosen per run</dt><dd>100, 200</dd>" in page and "Coreset size" not in page
    links = [unquote(link) for link in re.findall('href="(runs/.*?)"', page)]
    assert links == [f"{Path(c[3]).relative_to(tmp_path / 's')}/report.html" for c in calls]
    assert links[-1] == "runs/noise.kind=pairwise,noise.rate=0.5/seed=3/report.html"
    assert "smoke run" not in page


def test_a_sweep_with_a_short_run_says_so(tmp_path):
    config = make_config(("selection.outer_steps=3", "selection.outer_steps=300"))
    swept(pretend([]))(config, str(tmp_path / "s"), Console(file=io.StringIO()))
    assert "too few steps to mean anything" in (tmp_path / "s" / "report.html").read_text()


def test_a_sweep_of_inputs_counts_inputs(tmp_path):
    config = config_lib.features()
    config.sweep.points = ("num_inputs=5", "num_inputs=7")

    def run(config, workdir, console):
        methods = {"pbcs": {"test_accuracy": {"mean": 0.5}, "seconds": 1.0}}
        dataset = {"name": "d", "source": "npz", "num_train": 9, "num_test": 3}
        return {"dataset": dataset, "seconds": 1.5, "methods": methods}

    swept(run)(config, str(tmp_path / "s"), Console(file=io.StringIO()))
    page = (tmp_path / "s" / "report.html").read_text()
    assert "<dt>Chosen per run</dt><dd>5, 7</dd>" in page


def test_a_mistake_in_the_last_point_is_found_before_the_first_run(tmp_path):
    calls = []
    with pytest.raises(UserError, match="-1"):
        swept(pretend(calls))(
            make_config(("coreset_size=5", "coreset_size=-1")), str(tmp_path / "s"), Console()
        )
    with pytest.raises(UserError, match="twice"):
        swept(pretend(calls))(make_config((), (1, 1)), str(tmp_path / "s"), Console())
    assert not calls and not (tmp_path / "s").exists()
