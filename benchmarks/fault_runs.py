"""Runs of the command line that are killed, stopped, started twice, or run out of disk."""

import faulthandler
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pbcs_jax.__main__ import run
from pbcs_jax.experiments import judge
from pbcs_jax.interrupt import CODE

LIMIT = 180.0
"""Seconds after which a run counts as hung."""
KINDS = ("network", "kernel", "judging", "sweep")
EACH = 5
"""Signals that a run is sent, one after the other."""
KEEP_EVERY = 0.2
"""Seconds of judging after which it is kept, in place of a minute: these runs take seconds."""


class Done(NamedTuple):
    """How a run ended: its exit code, or the signal as a negative number, and what it printed."""

    code: int
    output: str


class Running:
    """A run in a process of its own, forked where everything is imported and no device is open."""

    def __init__(self, arguments: Iterable[str], before: Callable[[], None] = lambda: None):
        """`before` is called in the new process."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (`wait` closes it)
        self.pid = os.fork()
        if not self.pid:
            _become(["launch.py", *arguments], self._log.fileno(), before)

    def wait(self, seconds: float = LIMIT) -> Done:
        """Its end; a run that does not end is killed, and the result states it."""
        end, pid, status = time.monotonic() + seconds, 0, 0
        while not pid and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            time.sleep(0.005)
        hung = ""
        if not pid:
            self.send(signal.SIGUSR1)  # where it is
            time.sleep(1)
            self.send(signal.SIGKILL)
            used = os.wait4(self.pid, 0)[2]
            hung = f"\nTraceback: no end in {seconds} s, {used.ru_utime:.0f} s of CPU time"
        self._log.seek(0)
        output = self._log.read().decode(errors="replace") + hung
        self._log.close()
        return Done(os.waitstatus_to_exitcode(status), output)

    def has_ended(self) -> bool:
        """Whether it has; `wait` still says how."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def send(self, number: int) -> None:
        """Sends a signal; a run that has just ended keeps its process id until `wait`."""
        os.kill(self.pid, number)


def _become(arguments: list[str], log: int, before: Callable[[], None]) -> None:
    code: Any = 1
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.register(signal.SIGUSR1)
        judge.SPAN, judge.KEEP_EVERY = KEEP_EVERY / 2, KEEP_EVERY
        sys.argv = arguments
        os.environ["COLUMNS"] = "200"
        before()
        run()
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def write_data(path: Path, seed: int = 0) -> Path:
    """A small table of three classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 5)).astype(np.float32)
    y = np.arange(80) % 3
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    return path


def command(
    kind: str, data: Path, folder: Path, changes: Mapping[str, Any] | None = None
) -> list[str]:
    """A run of seconds: samples chosen by networks, by the kernel with exchanges, a sweep, or
    long judging.

    Args:
      kind: one of `KINDS`.
      data: from `write_data`.
      folder: of the run.
      changes: other values of config keys.
    """
    options: dict[str, Any] = {
        "data.path": data,
        "coreset_size": 9,
        "methods": "('pbcs','uniform','stratified')",
        "selection.objective": "network",
        "selection.outer_steps": 8,
        "evaluation.num_seeds": 3,
        "checkpoint_every": 1,
    }
    if kind == "judging":
        options |= {"methods": "('uniform','stratified')", "evaluation.steps": 4_000}
    elif kind != "network":
        options |= {"selection.objective": "kernel", "kernel.exchanges": 3}
        options |= {"kernel.outer_steps": 10, "kernel.num_masks": 4}
    if kind == "sweep":
        options |= {"sweep.points": "('coreset_size=6','coreset_size=9')"}
    options |= changes or {}
    flags = [f"--config.{key}={value}" for key, value in options.items()]
    return ["--config=npz:smoke", *flags, f"--workdir={folder}"]


def results(folder: Path) -> dict[str, Any]:
    """What a run found, without its times: equal for equal runs, down to the bits."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if "unreadable-" in name:
            continue
        if file.name in ("coreset.npz", "metrics.jsonl"):
            found[name] = file.read_bytes()
        elif file.name == "summary.json" or file.parent.name == "methods":
            found[name] = _without_times(json.loads(file.read_text()))
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        times = ("seconds", "judging_seconds", "checksum", "files", "run")
        return {k: _without_times(v) for k, v in value.items() if k not in times}
    return value


def is_clean(done: Done) -> bool:
    """Exit code 0, or one line that says why not and exit code 2."""
    lines = [line for line in done.output.splitlines() if line.startswith("error: ")]
    is_error = done.code == 2 and len(lines) == 1
    return "Traceback" not in done.output and (is_error or (done.code == 0 and not lines))


class References:
    """Uninterrupted runs, by kind: what they find, and how long they take."""

    def __init__(self, place: Path, attempts: int = 2, kinds: Iterable[str] = KINDS):
        """`place` is a folder for everything; the first attempt compiles."""
        self.place, self.data = place, write_data(place / "data.npz")
        self.results: dict[str, dict[str, Any]] = {}
        self.seconds: dict[str, float] = {}
        for kind in kinds:
            for attempt in range(attempts):
                began = time.monotonic()
                folder = place / f"{kind}-{attempt}"
                done = Running(command(kind, self.data, folder)).wait()
                self.seconds[kind] = time.monotonic() - began
                if done.code:
                    raise RuntimeError(done.output)
                self.results[kind] = results(folder)
        self.halfway = place / "halfway"
        """A run that was killed in the middle of its judging."""
        running = Running(command("judging", self.data, self.halfway))
        while not list(self.halfway.rglob("judging/*/*/*/state.npz")) and not running.has_ended():
            time.sleep(0.01)
        running.send(signal.SIGKILL)
        running.wait()

    def is_same(self, kind: str, folder: Path) -> bool:
        """Whether a folder holds the same bits, and nothing half-written."""
        left = [*folder.rglob("*.tmp"), *folder.rglob("judging")]
        return results(folder) == self.results[kind] and not left


def kills(
    of: References, numbers: range, each: int = EACH, number: int = signal.SIGKILL
) -> dict[str, int]:
    """Runs that are sent a signal at random moments, `each` times, then left to end."""
    wrong = codes = 0
    for which in numbers:
        kind, rng = KINDS[which % len(KINDS)], random.Random(f"{int(number)}-{which}")
        folder = of.place / f"killed-{number}-{which}"
        for _ in range(each):
            running = Running(command(kind, of.data, folder))
            time.sleep(rng.uniform(0.05, 0.8 * of.seconds[kind]))
            running.send(number)
            done = running.wait()
            expected = (0, -number) if number == signal.SIGKILL else (0, CODE)
            says = done.output.count("stopped by SIG") == (done.code == CODE)
            if done.code not in expected or not says or "Traceback" in done.output:
                codes += 1
                print(kind, folder, done, file=sys.stderr)
        done = Running(command(kind, of.data, folder)).wait()
        if done.code or not of.is_same(kind, folder):
            wrong += 1
            print(kind, folder, done, file=sys.stderr)
    runs = len(numbers)
    return {"signals": each * runs, "runs": runs, "other results": wrong, "wrong exits": codes}


def starts(of: References, numbers: range) -> dict[str, int]:
    """Two to four processes at once in one new folder: one does the work, the others say so."""
    harmed = refused = 0
    for number in numbers:
        folder, rng = of.place / f"together-{number}", random.Random(number)
        kind = KINDS[number % len(KINDS)]
        together = []
        for _ in range(rng.randint(2, 4)):
            together.append(Running(command(kind, of.data, folder)))
            time.sleep(rng.uniform(0, 0.3))
        ends = [running.wait() for running in together]
        refused += sum("is in use by process" in done.output for done in ends)
        fine = all(map(is_clean, ends)) and any(done.code == 0 for done in ends)
        if not fine or not of.is_same(kind, folder):
            harmed += 1
            print(kind, folder, *ends, sep="\n", file=sys.stderr)
    return {"starts": len(numbers), "refused": refused, "harmed": harmed}


def full_disk(of: References, numbers: range, count: int) -> dict[str, Any]:
    """Runs on a file system that is full at different ones of `count` points, then has room.

    Where none can be mounted, the largest file that may be written is limited instead.
    """
    wrong = ended = 0
    disk = of.place / "disk"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        for number in numbers:
            kind = KINDS[number % len(KINDS)]
            folder = disk / f"run-{number}"
            used = sum(f.stat().st_size for f in (of.place / f"{kind}-0").rglob("*"))
            size = int(used * (number + 0.5) / count)
            limit = (size, resource.RLIM_INFINITY)
            if mounted:
                _resize(disk, f"size={size}")
            before = partial(resource.setrlimit, resource.RLIMIT_FSIZE, limit)
            do = (lambda: None) if mounted else before
            done = Running(command(kind, of.data, folder), do).wait()
            ended += done.code == 2
            fine = is_clean(done)
            if mounted:
                _resize(disk, "size=1g")
            done_again = Running(command(kind, of.data, folder)).wait()
            if not fine or done_again.code or not of.is_same(kind, folder):
                wrong += 1
                print(kind, folder, done, done_again, file=sys.stderr)
            for file in sorted(folder.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=False)
    how = "tmpfs" if mounted else "RLIMIT_FSIZE"
    return {"points": len(numbers), "by": how, "ended in one line": ended, "wrong": wrong}


def _resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{size}", str(disk)], check=True)
