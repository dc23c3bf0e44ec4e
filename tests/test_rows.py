"""Candidates by index: the same selection as of an array, and only what is chosen is read."""

import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax import nets

Y = np.arange(60) % 3
X = np.random.default_rng(0).integers(0, 200, (60, 5, 5, 1)).astype(np.uint8)
X += (20 * Y[:, None, None, None]).astype(np.uint8)
HELD_OUT = (X[:12], Y[:12])
NET = nets.MLP(num_classes=3, hidden=(8,))
SHORT = {"objective": pbcs.Network(pbcs.Inner(steps=5)), "num_masks": 5, "outer_steps": 6}


def test_rows_of_a_mapped_file_select_what_the_array_selects(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows = pbcs.Rows.of_npy(str(tmp_path / "x.npy"))
    of_array = pbcs.select_coreset(0, X, Y, NET, 9, HELD_OUT, **SHORT)
    of_rows = pbcs.select_coreset(0, rows, Y, NET, 9, HELD_OUT, **SHORT)
    np.testing.assert_allclose(of_rows.probabilities, of_array.probabilities, atol=1e-5)
    assert of_rows.indices.tolist() == of_array.indices.tolist()
    assert of_rows.labels.tolist() == Y.tolist() and of_rows.suspects is None


def test_only_what_is_chosen_is_read():
    n, seen = 100_000, []

    def take(indices):
        seen.append(len(indices))
        return np.stack([indices % 7, indices % 3], axis=1).astype(np.float32)

    rows, y = pbcs.Rows(take, n), np.arange(n) % 3
    result = pbcs.select_coreset(0, rows, y, NET, 20, **SHORT)
    assert result.probabilities.shape == (n,) and len(result.indices) == 20
    assert sum(seen) < n / 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "kernel"}, "objective is Kernel, and x gives rows by index"),
        ({"objective": "auto"}, "objective is 'auto', and x gives rows by index"),
        (
            {"objective": "network", "estimator": "hybrid"},
            "estimator is 'hybrid', and x gives rows",
        ),
    ],
)
def test_what_needs_all_candidates_is_refused(changes, said):
    with pytest.raises(pbcs.UserError, match=said):
        pbcs.select_coreset(0, pbcs.Rows(lambda i: X[i], 60), Y, NET, 9, **changes)


@pytest.mark.parametrize(
    ("take", "said"),
    [
        (lambda i: X[i][:1], "x gives uint8 of shape"),
        (lambda i: np.where(i[:, None] == 30, np.nan, 1.0 * i[:, None]), "not finite in row 30"),
    ],
)
def test_rows_that_cannot_be_are_refused(take, said):
    with pytest.raises(pbcs.UserError, match=said):
        pbcs.select_coreset(0, pbcs.Rows(take, 60), Y, NET, 9, **SHORT)
    with pytest.raises(pbcs.UserError, match="cannot be mapped"):
        pbcs.Rows.of_npy("nowhere.npy")
