"""Files are whole or untouched, and equal content is equal bytes."""

import json
import os
import stat
import time

import numpy as np
import pytest

from pbcs_jax.report.files import write_atomically, write_json, write_npz


def test_text_and_bytes_replace_what_was_there_and_make_folders(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, "größer")
    assert path.read_text(encoding="utf-8") == "größer"
    write_atomically(str(path), b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, failing, error
):
    def fail(*_):
        raise error("midway")

    path = tmp_path / "summary.json"
    path.write_text("old")
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(error):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["summary.json"]


def test_files_have_the_ordinary_permissions(tmp_path):
    (tmp_path / "ordinary").touch()
    write_atomically(tmp_path / "ours", "")
    modes = {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("ordinary", "ours")}
    assert len(modes) == 1


def test_json_takes_numpy_and_keeps_the_order(tmp_path):
    path = tmp_path / "a.json"
    value = {
        "z": np.float32(0.5),
        "a": [np.int64(3), np.bool_(True)],
        "m": np.arange(4).reshape(2, 2),
        np.int32(7): (1, None),
    }
    write_json(path, value)
    expected = {"z": 0.5, "a": [3, True], "m": [[0, 1], [2, 3]], "7": [1, None]}
    assert json.loads(path.read_text()) == expected
    assert list(json.loads(path.read_text())) == list(expected)
    assert path.read_text().startswith('{\n  "z": 0.5,\n')


@pytest.mark.parametrize("bad", [float("nan"), np.float32("inf"), np.array([1.0, np.nan])])
def test_json_refuses_what_is_no_number_and_says_where(tmp_path, bad):
    with pytest.raises(ValueError, match=r"at \$\.runs\[1\]"):
        write_json(tmp_path / "a.json", {"runs": [1.0, bad]})
    assert not os.listdir(tmp_path)


def test_npz_has_the_same_bytes_at_another_time(tmp_path, monkeypatch):
    arrays = {"indices": np.arange(5), "probabilities": np.linspace(0, 1, 5, dtype=np.float32)}
    write_npz(tmp_path / "a.npz", **arrays)
    later = time.time() + 1e7
    monkeypatch.setattr(time, "time", lambda: later)
    write_npz(tmp_path / "b.npz", **arrays)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as loaded:
        assert list(loaded) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name], array)
            assert loaded[name].dtype == array.dtype


def test_npz_refuses_objects(tmp_path):
    with pytest.raises(ValueError, match="Object arrays"):
        write_npz(tmp_path / "a.npz", names=np.array(["a", None], dtype=object))
    assert not os.listdir(tmp_path)
