"""`size='auto'`: nested coresets, and the smallest that does well enough."""

import json

import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.errors import UserError
from pbcs_jax.portfolio import sizes as sizes_lib
from pbcs_jax.portfolio.members import Member

PLAN = pbcs.Plan(300, 300, 0, 5, (Member(("gauss",)), Member(start="stratified")), 0, 2)


def blobs(n=300, seed=0):
    """Three classes of Gaussian noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = rng.normal(size=(n, 4)) + 3 * np.eye(3, 4)[y]
    return x.astype(np.float32), y


@pytest.fixture(scope="module")
def found():
    x, y = blobs()
    return pbcs.select_coreset(0, x, y, size="auto", plan=PLAN, progress=False)


def test_the_size_is_the_smallest_that_is_good_enough(found):
    sizes = found.choice.sizes
    assert len(found.indices) == sizes.size < 100
    assert sizes.tolerance == 0.01
    assert [one.size for one in sizes.tried] == sorted({one.size for one in sizes.tried})
    smooth = [one.smooth for one in sizes.tried]
    assert smooth == sorted(smooth)
    enough = [one.size for one in sizes.tried if one.smooth >= sizes.everything - 0.01]
    assert sizes.size == enough[0]
    assert "nested" in [one.name for one in found.choice.judged]


def test_it_is_repeated_and_kept_and_shown(found, tmp_path):
    x, y = blobs()
    again = pbcs.select_coreset(0, x, y, size="auto", plan=found.choice.plan, progress=False)
    np.testing.assert_array_equal(again.indices, found.indices)
    assert again.choice.sizes == found.choice.sizes
    found.save(tmp_path / "result.npz")
    assert pbcs.Result.load(tmp_path / "result.npz").choice == found.choice
    found.to_html(tmp_path / "page.html")
    assert "Quality against size" in (tmp_path / "page.html").read_text()
    json.dumps(found.choice.to_dict())


@pytest.mark.parametrize("enough", [20, 100, 430])
def test_sizes_are_tried_between_the_largest_that_is_too_small_and_the_next(enough):
    asked = []

    def score(size):
        asked.append(size)
        return size / 1000

    known = sizes_lib._search(score, 1000, 3, enough / 1000)
    found = min(k for k, v in known.items() if v >= enough / 1000)
    assert enough <= found < 1.25 * enough
    assert len(asked) == len(set(asked)) < 15


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "kernel"}, "size is 'auto', which is for objective='auto'"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    x, y = blobs(30)
    with pytest.raises(UserError, match=said):
        pbcs.select_coreset(0, x, y, size="auto", progress=False, **options)
