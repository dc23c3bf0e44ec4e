"""The presets `smoke` of the analysis, and what they leave behind."""

import io
import json

import numpy as np
import pytest
from pbcs_jax.configs import analysis_evolution, analysis_mapping, analysis_size, analysis_time
from rich.console import Console

from pbcs_jax.errors import UserError
from pbcs_jax.experiments import EXPERIMENTS
from pbcs_jax.experiments import config as config_lib


def run(module, folder):
    config = module.get_config("smoke")
    return EXPERIMENTS["analysis"](config, str(folder), Console(file=io.StringIO(), width=200))


def test_evolution_keeps_the_probabilities_and_shows_them(tmp_path):
    summary = run(analysis_evolution, tmp_path)
    assert set(summary["methods"]) == {"pbcs", "uniform"}
    kept = sorted(path.stem for path in (tmp_path / "probabilities").iterdir())
    assert kept == ["000002", "000004", "000006"]
    for name in ("wrong_labels_over_time.png", "probabilities_over_time.gif"):
        assert (tmp_path / "figures" / name).stat().st_size > 500
    assert "Wrong labels over time" in (tmp_path / "report.html").read_text()
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    with np.load(tmp_path / "coreset.npz") as coreset:
        s = coreset["probabilities"]
    assert lines[-1]["unsettled"] == pytest.approx(float((s * (1 - s)).sum() / 10), rel=1e-3)


def test_sizes_have_wrong_labels_and_the_gap_between_classes(tmp_path):
    summary = run(analysis_size, tmp_path)
    (found,) = (point["methods"]["pbcs_kernel"] for point in summary["points"].values())
    assert 0 <= found["wrong_labels"]["mean"] <= 1 and 0 < found["class_gap"]["mean"] <= 1
    pictures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"wrong_labels__kind_symmetric.png", "class_gap__kind_symmetric.png"} <= pictures


def test_time_is_measured_and_shown_in_seconds(tmp_path):
    summary = run(analysis_time, tmp_path)
    (found,) = (point["methods"]["pbcs_kernel"] for point in summary["points"].values())
    seconds = found["processor_seconds"]["mean"]
    table = (tmp_path / "table.md").read_text().split("processor seconds")[1]
    assert 0 < seconds < 60 and f"{seconds:.2f}" in table
    assert (tmp_path / "figures" / "processor_seconds.png").exists()


def test_the_gradient_mapping_is_traced_for_each_number_of_masks(tmp_path):
    summary = run(analysis_mapping, tmp_path)
    assert list(summary["methods"]) == ["masks_1", "masks_2"]
    assert all(0 <= one["mapping_mean"] <= one["bound"] for one in summary["methods"].values())
    with np.load(tmp_path / "traces" / "masks_2.npz") as found:
        assert found["mapping"].shape == found["first"].shape == (10,)
    assert (tmp_path / "figures" / "gradient_mapping.png").exists()


def test_an_unknown_kind_is_refused():
    config = config_lib.analysis()
    config.analysis.kind = "evolve"
    with pytest.raises(UserError, match=r"analysis\.kind"):
        config_lib.check(config)
