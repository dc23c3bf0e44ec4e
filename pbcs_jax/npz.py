"""Reads npz files that nobody vouches for: sizes are checked before, checksums while reading.

`np.load` takes the memory that a header promises, unpacks zip bombs, and compares no checksum where
a damaged header makes an array shorter.
"""

import errno
import math
import os
import stat
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pbcs_jax import memory
from pbcs_jax.errors import DamagedError, UserError, one_line

_PIECE = 1 << 24
_END = struct.Struct("<4s4H2LH")
"""The last record of a zip file; the fifth entry is the number of its members."""
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_file(what: str, path: str | os.PathLike[str], remedy: str) -> Path:
    """The path of a regular file that exists; FIFOs and devices would be read for ever.

    Args:
      what: the file's name in errors, such as 'data file'.
      path: where it should be.
      remedy: what to give instead.
    """
    shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:100]}..."
    file = Path(os.path.expanduser(path))
    try:
        mode = file.stat().st_mode
    except FileNotFoundError as error:
        raise UserError(f"{what} {shown!r} does not exist: {remedy}") from error
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise UserError(f"{what} {shown!r} cannot be opened ({reason(error)}): {remedy}") from error
    if stat.S_ISREG(mode):
        return file
    kind = "is a directory" if stat.S_ISDIR(mode) else "is no regular file"
    raise UserError(f"{what} {shown!r} {kind}: {remedy}")


def read(
    path: str | os.PathLike[str], keys: Iterable[str] | None = None
) -> tuple[list[str], dict[str, np.ndarray]]:
    """The names of all arrays, and those arrays of `keys` that are there; all of them if None.

    Raises:
      DamagedError: it is no npz file, or not as it was written.
      UserError: it unpacks to more than there is memory.
      OSError: the disk did not give it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_list(path, archive)
            members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}
            wanted = [name for name in (members if keys is None else keys) if name in members]
            _check_size(path, sum(members[name].file_size for name in wanted))
            return list(members), {name: _array(archive, members[name]) for name in wanted}
    except UserError:
        raise
    except Exception as error:  # damage shows as whatever zipfile, zlib, lzma and numpy raise
        code = error.errno if isinstance(error, OSError) else None
        if code and code != errno.EINVAL:  # which is a place before the file's beginning
            raise
        raise DamagedError(path, one_line(error)) from error


def reason(error: Exception) -> str:
    """Why the system refused something, in its own words."""
    return getattr(error, "strerror", None) or str(error)


def _check_size(path: Any, size: int) -> None:
    limit = memory.allowed() or memory.free()
    if size > limit:
        raise UserError(
            f"file {str(path)!r} unpacks to {size / 2**30:.1f} GB and {limit / 2**30:.1f} GB of "
            f"memory are free: use fewer samples, or set {memory.VARIABLE} to allow more"
        )


def _check_list(path: Any, archive: zipfile.ZipFile) -> None:
    """Raises unless the list of members is whole: it is the one part without a checksum.

    A member that seems to have a longer comment hides the next; one of another name, that one.
    """
    with open(path, "rb") as file:
        file.seek(-_END.size - len(archive.comment), os.SEEK_END)
        count = _END.unpack(file.read(_END.size))[4]
    listed = len(set(archive.namelist()))
    if count not in (listed, 0xFFFF):  # which stands for more than the field can hold
        raise ValueError(f"{listed} of {count} members are listed")
    for member in archive.infolist():
        archive.open(member).close()  # compares the name with the one beside the member


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array, with its checksum compared: zipfile does that where a member ends."""
    with archive.open(member) as stream:
        readinto: Any = getattr(stream, "readinto")  # noqa: B009 (its type does not say)
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename} has the npy format {version}")
        shape, fortran, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise ValueError("Object arrays are pickled, and never loaded")
        size, left = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
        if size != left:
            raise ValueError(f"the header of {member.filename} promises {size} bytes of {left}")
        array = np.empty(size, np.uint8)
        done = 0
        while done < size and (count := readinto(array[done : done + _PIECE])):
            done += count
        if done < size or stream.read(1):
            raise ValueError(f"{member.filename} has not the length that it promises")
    return np.ndarray(shape, dtype, array.data, order="F" if fortran else "C")
