"""What tells one data set from another: the shape, the type and a hash of each array."""

import hashlib

import numpy as np

from pbcs_jax.data.sources import Dataset
from pbcs_jax.rows import Rows

LARGEST = 1 << 30
"""Bytes up to which all of an array is hashed."""
ROWS = 10_000
"""Of larger arrays so many rows are, evenly spread."""


def fingerprint(dataset: Dataset) -> dict[str, str]:
    """By array a text such as 'uint8 (4000, 28, 28, 1) sha256:0a1b...'."""
    arrays = {name: getattr(dataset, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    return {name: _text(array) for name, array in arrays.items()}


def _text(array: np.ndarray | Rows) -> str:
    kind = "sha256"
    if isinstance(array, Rows):
        kind, rows = f"sha256 of {ROWS} rows", array.some(ROWS)
    elif array.nbytes <= LARGEST:
        rows = array
    else:
        kind = f"sha256 of {ROWS} rows"
        rows = array[np.linspace(0, len(array) - 1, ROWS).astype(np.int64)]
    found = hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()
    return f"{array.dtype} {array.shape} {kind}:{found}"
