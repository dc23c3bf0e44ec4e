"""Final files: whole or not at all, and the same content always as the same bytes."""

import io
import json
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes `content` (text as UTF-8) beside `path`, then renames it; missing folders are made.

    A reader, or a run that is killed at any moment, sees the old file or the new one.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not `tempfile`: its files are readable by their owner only, and the rename would keep that.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may keep the rename and lose the content
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes `value` as indented JSON, keys in the order given, arrays as lists.

    NaN and infinity are no JSON: they raise a `ValueError` that names the entry; write None.
    """
    text = json.dumps(_plain(value, "$"), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, text + "\n")


def write_npz(path: str | os.PathLike[str], **arrays: ArrayLike) -> None:
    """Writes named arrays for `np.load(path, allow_pickle=False)`.

    Arrays of Python objects raise a `ValueError`. NumPy gives every entry of the archive the same
    fixed date, so that equal arrays are equal files.
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def _plain(value: Any, where: str) -> Any:
    """`value` in JSON's own types; `where` is its JSON path, for the error message."""
    if isinstance(value, Mapping):
        return {_plain(key, where): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and of JAX
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no {value} (at {where}); write None where there is no number")
    return value
