"""Memory: of the machine, of the cgroups around the process, or as the user says."""

import pytest

from pbcs_jax import memory
from pbcs_jax.errors import UserError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose files can be written, with far more memory than any limit here."""
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory.os, "sysconf", lambda name: 1 << 20)

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_without_cgroups_the_machine_counts(machine):
    assert memory.total() == memory.free() == 1 << 40
    machine("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 3 kB\n")
    assert memory.free() == 3 * 1024


def test_the_smallest_cgroup_around_the_process_counts(machine):
    machine("proc/self/cgroup", "0::/a/b\n")
    machine("cgroup/a/b/memory.max", "max\n")
    machine("cgroup/a/b/memory.current", "100\n")
    machine("cgroup/a/memory.max", "5000\n")
    machine("cgroup/a/memory.current", "3000\n")
    machine("cgroup/a/memory.stat", "anon 1000\ninactive_file 2000\n")
    assert memory.total() == 5000 and memory.free() == 4000


def test_version_1_whose_path_is_that_of_the_host(machine):
    machine("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/0a1b\n")
    machine("cgroup/memory/memory.limit_in_bytes", "7000\n")
    machine("cgroup/memory/memory.usage_in_bytes", "1000\n")
    assert memory.total() == 7000 and memory.free() == 6000


@pytest.mark.parametrize("text", ["abc", "nan", "-1", "0", "inf", ""])
def test_the_variable_is_a_number_of_gigabytes(text, monkeypatch):
    monkeypatch.setenv(memory.VARIABLE, text)
    with pytest.raises(UserError, match=f"PBCS_MEMORY_GB is '{text}': use a number of gigabytes"):
        memory.allowed()
