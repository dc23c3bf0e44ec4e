"""What the page of a run says, from runs in this process."""

import dataclasses
import importlib
import io
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from pbcs_jax.configs import breast_cancer_features, mnist_features, mnist_noise
from rich.console import Console

from pbcs_jax import configs
from pbcs_jax.experiments import EXPERIMENTS, features, summarization
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.workdir import command_line
from pbcs_jax.result import Suspects


def run(config, folder):
    EXPERIMENTS[config.experiment](config, str(folder), Console(file=io.StringIO()))
    return (folder / "report.html").read_text()


def with_suspects(monkeypatch, find):
    """Lets `find(y)` tell the suspects of every coreset."""
    select = summarization.select_coreset

    def selected(key, x, y, *rest, **options):
        result = select(key, x, y, *rest, **options)
        return dataclasses.replace(result, find_suspects=lambda: find(np.asarray(y)))

    monkeypatch.setattr(summarization, "select_coreset", selected)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A run whose suspects are the first 120 candidates."""

    def find(y):
        return Suspects(np.arange(120), np.linspace(1, 0, 120), (y[:120] + 1) % 10)

    folder = tmp_path_factory.mktemp("noisy") / "run"
    with pytest.MonkeyPatch.context() as patch:
        with_suspects(patch, find)
        config = mnist_noise.get_config("smoke")
        page = run(config, folder)
    return folder, page, config_lib.load_problem(config)


def test_suspects_are_kept_in_the_file_and_judged_where_the_noise_was_made(noisy):
    folder, page, problem = noisy
    with np.load(folder / "coreset.npz", allow_pickle=False) as coreset:
        np.testing.assert_array_equal(coreset["suspect_indices"], np.arange(120))
        assert coreset["suspect_scores"].shape == coreset["suspect_labels"].shape == (120,)
    wrong = (problem.y != problem.y_true)[:100]
    assert f"Precision of the 100 most suspect: {wrong.mean():.1%}" in page
    suspects = page.split("<h2>Suspects</h2>")[1]
    assert suspects.count("<td>yes</td>") == wrong.sum()
    assert suspects.count("<td><img alt=") == 100
    assert f'<img alt="sample {problem.indices[0]}"' in suspects


def test_the_chosen_are_rows_of_the_data_set_with_label_and_probability(noisy):
    folder, page, problem = noisy
    with np.load(folder / "coreset.npz", allow_pickle=False) as coreset:
        first, s = coreset["indices"][0], coreset["probabilities"]
    cells = [problem.indices[first], problem.y[first], f"{s[first]:.4f}"]
    part = page.split("<h2>Table of the chosen samples</h2>")[1]
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" in part


def test_the_page_leads_to_the_files_and_warns_of_too_few_steps(noisy):
    folder, page, _ = noisy
    links = re.findall('<a href="(.*?)">', page)
    assert links == ["coreset.npz", "metrics.jsonl", "config.json"]
    assert all((folder / link).exists() for link in links)
    assert "This is a smoke run: too few steps to mean anything." in page
    assert "<dt>Selecting and judging took</dt>" in page and "<dt>Commit</dt>" in page


def test_without_made_noise_nobody_knows_which_labels_are_wrong(tmp_path, monkeypatch):
    with_suspects(monkeypatch, lambda y: Suspects(np.arange(5), np.linspace(1, 0, 5), y[:5]))
    config = mnist_noise.get_config("smoke")
    config.noise.kind = "none"
    page = run(config, tmp_path / "run")
    assert "<h2>Suspects</h2>" in page and "Precision" not in page


def test_the_page_says_how_many_were_chosen_not_how_many_were_asked_for(tmp_path):
    """A bound on classes may leave fewer."""
    config = mnist_noise.get_config("smoke")
    config.selection.max_ratio, config.coreset_size = 1.0, 190
    config.methods = ("pbcs",)
    page = run(config, tmp_path / "run")
    with np.load(tmp_path / "run" / "coreset.npz") as coreset:
        size = len(coreset["indices"])
    assert size < 190 and f"<dt>Chosen</dt><dd>{size} of 200 samples</dd>" in page


def test_names_of_columns_stand_beside_the_chosen_inputs(tmp_path, monkeypatch):
    """A stand-in for data that have names."""

    class Named:
        def __init__(self, problem):
            self.problem, self.names = problem, [f"column {i}" for i in range(30)]

        def __getattr__(self, name):
            return getattr(self.problem, name)

    load = config_lib.load_problem
    monkeypatch.setattr(config_lib, "load_problem", lambda config: Named(load(config)))
    config = breast_cancer_features.get_config("smoke")
    config.methods = ("pbcs",)
    page = run(config, tmp_path / "run")
    with np.load(tmp_path / "run" / "coreset.npz") as coreset:
        chosen = coreset["indices"]
    assert all(f"<td>{index}</td><td>column {index}</td>" in page for index in chosen)


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(configs.__path__)])
def test_only_short_runs_are_smoke_runs(name):
    module = importlib.import_module(f"pbcs_jax.configs.{name}")
    warned = {preset for preset in module.PRESETS if config_lib.banner([module.get_config(preset)])}
    assert warned == {"smoke"}


def test_without_pbcs_there_are_no_steps_to_be_too_few():
    config = mnist_noise.get_config("smoke")
    config.methods = ("uniform",)
    assert not config_lib.banner([config])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["launch.py", "--a=1"], "python launch.py --a=1"),
        (["x/pbcs_jax/__main__.py", "--a=b c"], "python -m pbcs_jax '--a=b c'"),
        (["bin/pbcs", "--a=('b',)"], "pbcs \"--a=('b',)\""),
        (["pbcs", "--a='$b'"], "pbcs '--a='\"'\"'$b'\"'\"''"),
        (["pytest", "--a=1"], None),
    ],
)
def test_the_command_can_be_pasted(arguments, said):
    assert command_line([str(Path(arguments[0])), *arguments[1:]]) == said


def test_patches_are_counted_as_patches(tmp_path):
    config = mnist_features.get_config("smoke")
    config.inputs.patch, config.methods = 4, ("pbcs",)
    page = run(config, tmp_path / "run")
    assert "20 of 49 patches" in page and "<h2>Table of the chosen patches</h2>" in page
    assert features.EXPERIMENT.unit(config) == "patches"
