"""Final files: whole or not at all, and the same content always as the same bytes.

What a run reads again is a record: JSON with a checksum of its own content.
"""

import errno
import hashlib
import io
import json
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pbcs_jax.errors import DamagedError, one_line

CHECKSUM = "checksum"
"""The last entry of a record."""
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_MAY_PASS = {errno.EIO, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM}
_PAUSES = (0.1, 0.5, 2.0)

Value = TypeVar("Value")


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes `content` (text as UTF-8) beside `path`, then renames it; missing folders are made.

    A reader, or a run that is killed at any moment, sees the old file or the new one.
    """
    path = Path(path)
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
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
    if os.name == "posix":  # the rename itself is in the folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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


def write_record(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Writes JSON for `read_record`, with a checksum as its last entry."""
    plain = _plain(value, "$")
    write_json(path, {**plain, CHECKSUM: checksum(plain)})


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `write_record` has written, without the checksum.

    Raises:
      DamagedError: it is something else.
      OSError: the disk did not give it, or it is not there.
    """
    content = retried(lambda: Path(path).read_bytes())
    try:
        value = json.loads(content.decode("utf-8"))
        found = value.pop(CHECKSUM)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedError(path, one_line(error)) from error
    if found != checksum(value):
        raise DamagedError(path, "its checksum is another")
    return value


def digest(path: Path) -> str | None:
    """SHA-256 of a file; None if there is no such file."""
    try:
        return hashlib.sha256(retried(path.read_bytes)).hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def remove_unfinished(folder: Path) -> None:
    """Removes what killed processes of this run were writing, here and below; follows no links."""
    for place, _, names in os.walk(folder):
        for name in filter(_UNFINISHED.fullmatch, names):
            os.unlink(os.path.join(place, name))


def set_aside(path: Path) -> Path:
    """Renames what cannot be read to `unreadable-NAME` beside it: nobody else may delete it."""
    aside, number = path.with_name(f"unreadable-{path.name}"), 2
    while os.path.lexists(aside):
        aside, number = path.with_name(f"unreadable-{number}-{path.name}"), number + 1
    os.rename(path, aside)
    return aside


def retried(read: Callable[[], Value]) -> Value:
    """`read()`, tried again after errors of the disk or the network that may pass."""
    for pause in _PAUSES:
        try:
            return read()
        except OSError as error:
            if error.errno not in _MAY_PASS:
                raise
            time.sleep(pause)
    return read()


def checksum(plain: Any) -> str:
    """SHA-256 of a value in JSON's own types; the order of keys does not count."""
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
