"""How much memory there is: of the machine, of the container (cgroup), or as the user says."""

import os
from collections.abc import Iterator
from pathlib import Path

from pbcs_jax.errors import UserError, check_number

VARIABLE = "PBCS_MEMORY_GB"
"""The environment variable that overrules what is found here."""
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def allowed() -> int | None:
    """Bytes that PBCS_MEMORY_GB names; None if it is not set."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    try:
        check_number(VARIABLE, value, least=0, most=1e9, above=True)
    except UserError as error:
        raise UserError(f"{VARIABLE} is {text!r}: use a number of gigabytes, such as 4") from error
    return int(value * 2**30)


def total() -> int:
    """Bytes of the machine, or of the cgroup that this process may not leave."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for limit, _ in _cgroup_limits())])


def free() -> int:
    """Bytes that can be taken now without taking them from anybody."""
    found = [total(), *(limit - used for limit, used in _cgroup_limits())]
    for line in _read(PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    return max(min(found), 0)


def _cgroup_limits() -> Iterator[tuple[int, int]]:
    """`(limit, used)` of each cgroup around this process, of version 2 or 1, that has a limit.

    Files in the page cache count as used there, though they give way: they are subtracted.
    """
    for line in _read(PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = CGROUPS / controllers
        names = ("memory.max", "memory.current", "inactive_file")
        if controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        # Inside of a container the path may be the host's, and the root is the container's own.
        around = [root / path.lstrip("/"), *(root / path.lstrip("/")).parents]
        for folder in around[: around.index(root) + 1]:
            limit, used = _read(folder / names[0]).strip(), _read(folder / names[1]).strip()
            if not (limit.isdigit() and used.isdigit()):
                continue
            stat = dict(s.split(" ", 1) for s in _read(folder / "memory.stat").splitlines() if s)
            yield int(limit), max(int(used) - int(stat.get(names[2], 0)), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
