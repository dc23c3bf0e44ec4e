"""The documents are true: their examples run, their symbols import, their links lead somewhere."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import pbcs_jax as pbcs
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.select import select_coreset, select_features

ROOT = Path(__file__).parents[1]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GUIDES = ["data", "samples", "inputs", "own_loop", "compute", "models", "replay"]
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


def blocks(page):
    return [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]


@pytest.fixture
def short(monkeypatch):
    """Selections of two outer steps, or of a plan with one way to choose."""
    one = {"views": ["gauss"], "cleaned": False, "validated": False, "even": False}
    one |= {"start": "herding", "seed": 0}
    sizes = {"pool": 200, "outer": 100, "networks": 0, "swaps": 4, "restarts": 0, "seeds": 1}

    def coreset(*args, **options):
        is_auto = options.get("objective", "auto") == "auto"
        more = {"plan": sizes | {"members": [one]}} if is_auto else {"outer_steps": 2}
        return select_coreset(*args, **options | more)

    monkeypatch.setattr(pbcs, "select_coreset", coreset)
    features = lambda *args, **options: select_features(*args, **options | {"outer_steps": 2})  # noqa: E731
    monkeypatch.setattr(pbcs, "select_features", features)


def test_the_readme_example_runs(tmp_path, monkeypatch, short):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(ROOT / "README.md")
    rng = np.random.default_rng(0)
    np.save("embeddings.npy", rng.normal(size=(600, 2)))
    np.save("labels.npy", np.arange(600) % 2)
    exec(example, {})
    assert np.load("coreset.npy").shape == (500,)
    assert len(example.strip().splitlines()) <= 7


@pytest.mark.parametrize("name", GUIDES)
def test_the_guide_runs_from_top_to_bottom(name, short, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(ROOT / "docs" / "guide" / f"{name}.md"):
        for slow, quick in (
            ("num_candidates=1000", "num_candidates=200"),
            ("nets.ConvNet(num_classes=10, dropout=0.5)", "nets.MLP(num_classes=10)"),
            ("nets.ConvNet()", "nets.MLP(hidden=(8,))"),
            ('    "greedy",\n', ""),
            ("outer_steps=200", "outer_steps=20"),
        ):
            block = block.replace(slow, quick)
        exec(block, names)


def test_no_python_block_is_left_out():
    """The README's example is on the front page too; all others are in guides that are run."""
    assert blocks(ROOT / "docs" / "index.md") == blocks(ROOT / "README.md")
    run = {ROOT / "README.md", ROOT / "docs" / "index.md"}
    run |= {ROOT / "docs" / "guide" / f"{name}.md" for name in GUIDES}
    assert {page for page in PAGES if blocks(page)} == run


def test_the_tutorial_runs(tmp_path):
    """With fewer candidates and less time; as it is committed, it was run from top to bottom."""
    notebook = nbformat.read(TUTORIAL, 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
    for long, short in (
        ("5.0, 600", "0.5, 300"),
        ('"kernel", ', '"kernel", "num_masks": 2, "outer_steps": 2, '),
        ("(20, 50, 100)", "(50,)"),
        ("range(5)", "range(1)"),
    ):
        assert any(long in cell.source for cell in cells), long
        for cell in cells:
            cell.source = cell.source.replace(long, short)
    paths = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=paths).execute()
    assert "wrong labels:" in "".join(out.get("text", "") for c in cells for out in c.outputs)


def test_links_of_the_tutorial_lead_somewhere():
    text = "".join(cell.source for cell in nbformat.read(TUTORIAL, 4).cells)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert len(links) >= 5
    assert all((TUTORIAL.parent / link).exists() for link in links)


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in pbcs.__all__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("sphinx", "furo", "myst_nb"))),
    reason="the extra docs is not installed",
)
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", "."]
    quiet = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=quiet, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "index.html").exists() and (tmp_path / "index.html").exists()


def test_every_symbol_of_the_map_of_the_paper_imports():
    symbols = set(re.findall(r"`(pbcs_jax(?:\.\w+)+)`", (ROOT / "docs/paper_map.md").read_text()))
    assert len(symbols) > 30
    for symbol in symbols:
        module, _, name = symbol.rpartition(".")
        assert hasattr(importlib.import_module(module), name), symbol


def test_every_config_that_documents_name_exists():
    for page in PAGES:
        for name in re.findall(r"configs/(\w+)\.py|pbcs --config=(\w+)", page.read_text()):
            assert (ROOT / "configs" / f"{''.join(name)}.py").exists(), (page.name, name)


def test_commands_that_documents_name_exist():
    """Modules, presets and keys of configs."""
    text = "\n".join(page.read_text() for page in PAGES)
    modules = set(re.findall(r"python -m ((?:benchmarks|pbcs_jax)[\w.]*)", text))
    assert len(modules) > 10 and all(map(importlib.util.find_spec, modules))
    for name, preset in set(re.findall(r"configs/(\w+)\.py:(\w+)", text)):
        module = importlib.import_module(f"pbcs_jax.configs.{name}")
        assert preset in module.PRESETS, (name, preset)
    known = {key for make in config_lib.TEMPLATES.values() for key in config_lib.flatten(make())}
    keys = set(re.findall(r"--config\.([a-z][\w.]*)=", text))
    assert len(keys) > 20 and keys <= known, keys - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r"^\[\w+\]: (\S+)", text, re.M)
    for link in links:
        if not link.startswith("http"):
            assert (page.parent / link.partition("#")[0]).exists(), link


def test_the_readme_is_short_and_results_is_one_page():
    assert len((ROOT / "README.md").read_bytes()) <= 7000
    assert len((ROOT / "RESULTS.md").read_bytes()) <= 8000


def test_the_version_is_one_and_the_same():
    assert pbcs.__version__ in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {pbcs.__version__}" in (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "pbcs_jax.__version__"


def test_all_folders_of_the_package_are_shipped():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {p.parent for p in (ROOT / "pbcs_jax").rglob("*.py")}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert names | {"pbcs_jax.configs"} == set(project["tool"]["setuptools"]["packages"])


def test_names_of_the_first_release_still_import():
    for name in ("FeatureKernel", "Kernel", "features_objective", "network_objective", "Inner"):
        assert name in pbcs.__all__
    from pbcs_jax.baselines import BASELINES, Candidates, herding

    assert BASELINES["herding"] is herding and Candidates.__name__ == "Candidates"
    assert jax.tree.structure(pbcs.Samples((3,))).num_leaves == 0
