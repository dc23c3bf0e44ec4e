"""No bit of an npz file can be flipped so that other arrays are read without a word."""

import zipfile

import numpy as np

from pbcs_jax import memory, npz
from pbcs_jax.errors import UserError


def is_same(one, other):
    return one.keys() == other.keys() and all(
        one[k].dtype == other[k].dtype and np.array_equal(one[k], other[k]) for k in one
    )


def test_flipped_bits_change_nothing_or_are_noticed(tmp_path, monkeypatch):
    file = tmp_path / "a.npz"
    np.savez(file, owner=np.array("me"), a=np.arange(3.0), b=np.int32([[1, 2]]))
    content = file.read_bytes()
    monkeypatch.setattr(memory, "free", lambda: 2**30)  # asks the system each time
    names, before = npz.read(file)
    assert names == ["owner", "a", "b"]
    with zipfile.ZipFile(file) as archive:
        listed = archive.start_dir  # the list of members has no checksum: all of its bits
    refused, places = 0, [*range(0, listed, 20), *range(listed, len(content))]
    for place in places:
        for bit in range(8):
            flipped = content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
            file.write_bytes(flipped)
            try:
                assert is_same(npz.read(file)[1], before), (place, bit)
            except UserError:
                refused += 1
    assert refused > 4 * len(places)  # all but dates, and what else says nothing of the arrays
