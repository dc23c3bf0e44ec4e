"""Processes over loopback, or in network namespaces, that select together, end, and continue."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
LIMIT = 60.0
"""Seconds in which all processes must have ended, from the event on."""
CONFIG = (
    f"--config={ROOT}/configs/mnist.py:smoke",
    "--config.selection.outer_steps=40",
    "--config.inner.steps=100",
    "--config.checkpoint_every=4",
)
RAISES = """
from pbcs_jax import ending
from pbcs_jax.__main__ import run
calls, check = [], ending.check_signals
def failing():
    calls.append(1)
    if len(calls) == 3:
        raise RuntimeError("a stick of memory is broken")
    check()
ending.check_signals = failing
run()
"""


class End(NamedTuple):
    """How processes ended: seconds from the event, exit codes (None: not at all), last lines."""

    seconds: float
    codes: list[int | None]
    lines: list[str]


def free_port() -> int:
    """A port of the loopback that nobody uses."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def environment(devices: int = 1) -> dict[str, str]:
    """With so many CPU devices per process."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    flags = f"--xla_force_host_platform_device_count={devices}"
    return {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, "COLUMNS": "200"}


def workers(out: Path, count: int, devices: int = 1, differs: str = "") -> End:
    """`benchmarks.host_worker` in so many processes, to their ends."""
    port = free_port()
    running = []
    for number in range(count):
        command = [sys.executable, "-m", "benchmarks.host_worker", f"--out={out}"]
        if count > 1:
            command.append(f"--address=localhost:{port},{count},{number}")
        if differs:
            command.append(f"--differs={differs}")
        running.append(_process(command, out.with_name(f"{out.stem}-{number}.log"), devices))
    return ended(running, [out.with_name(f"{out.stem}-{n}.log") for n in range(count)], 900)


def _process(
    command: Sequence[str], log: Path, devices: int = 1, folder: Path = ROOT
) -> subprocess.Popen:
    with log.open("w") as file:
        env = environment(devices)
        return subprocess.Popen(command, env=env, cwd=folder, stdout=file, stderr=file)


def ended(running: Iterable[subprocess.Popen], logs: Iterable[Path], limit: float = LIMIT) -> End:
    """Waits; who has not ended within the limit is killed, and has no exit code."""
    began = time.monotonic()
    codes: list[int | None] = []
    for one in running:
        try:
            codes.append(one.wait(max(began + limit - time.monotonic(), 0.01)))
        except subprocess.TimeoutExpired:
            codes.append(None)
    seconds = time.monotonic() - began
    for one in running:
        if one.poll() is None:
            one.kill()
            one.wait()
    said = [re.findall(r"^(?:error: )?process .*", log.read_text(), re.M) for log in logs]
    return End(seconds, codes, [lines[-1] if lines else "" for lines in said])


class Launched:
    """A run of the command line in several processes."""

    def __init__(
        self,
        folder: Path,
        count: int,
        more: Mapping[int, Sequence[str]] | None = None,
        raises: int = -1,
        hosts: Sequence[str] = (),
        places: Sequence[Path] = (),
    ):
        """Starts them.

        Args:
          folder: of the run; logs are beside it.
          count: of processes.
          more: further arguments of some of them.
          raises: the number of one that raises an error at its third checkpoint.
          hosts: network namespaces, one per process; process 0 is at 10.77.0.1 there.
          places: working directories, one per process.
        """
        self.folder = folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.logs = [folder.with_name(f"{folder.name}-{n}.log") for n in range(count)]
        address = f"10.77.0.1:{free_port()}" if hosts else f"localhost:{free_port()}"
        self.running = []
        for number, log in enumerate(self.logs):
            command = [sys.executable, str(ROOT / "launch.py")]
            if number == raises:
                command = [sys.executable, "-c", RAISES]
            command += [*CONFIG, *(more or {}).get(number, ()), f"--workdir={folder}"]
            if count > 1:
                command += [f"--coordinator={address}", f"--num_processes={count}"]
                command += [f"--process_id={number}"]
            if hosts:
                command = ["ip", "netns", "exec", hosts[number], *command]
            place = places[number] if places else ROOT
            self.running.append(_process(command, log, folder=place))

    def wait_for_steps(self, steps: int = 8) -> None:
        """Until metrics of so many outer steps are there."""
        metrics = self.folder / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < steps:
            if any(one.poll() is not None for one in self.running):
                raise RuntimeError("\n".join(log.read_text() for log in self.logs))
            time.sleep(0.1)

    def end(self, limit: float = LIMIT) -> End:
        """How they end."""
        return ended(self.running, self.logs, limit)


def whole(folder: Path, count: int) -> None:
    """A run to its end; raises if it has none."""
    end = Launched(folder, count).end(600)
    if any(end.codes):
        raise RuntimeError(f"{folder}: {end}")


def difference(one: Path, other: Path) -> dict[str, Any]:
    """Of two finished runs: the largest difference of probabilities, and what is equal in bits."""
    found = [dict(np.load(folder / "coreset.npz")) for folder in (one, other)]
    gap = np.abs(found[0]["probabilities"] - found[1]["probabilities"]).max()
    same_bits = all(
        (one / name).read_bytes() == (other / name).read_bytes()
        for name in ("coreset.npz", "metrics.jsonl")
    )
    return {
        "probabilities": float(gap),
        "same indices": found[0]["indices"].tolist() == found[1]["indices"].tolist(),
        "same bits": same_bits,
        "same files": {p.name for p in one.iterdir()} == {p.name for p in other.iterdir()},
    }


EVENTS = {
    "SIGKILL of process 1": (1, signal.SIGKILL),
    "SIGKILL of process 0": (0, signal.SIGKILL),
    "SIGSTOP of process 1": (1, signal.SIGSTOP),
    "an exception in process 1": (1, None),
}


def loss(place: Path, name: str, reference: Path) -> dict[str, Any]:
    """Two processes, one of which is lost; then the same command once more."""
    number, sent = EVENTS[name]
    folder = place / re.sub(r"\W+", "-", name) / "run"
    run = Launched(folder, 2, raises=-1 if sent else number)
    if sent:
        run.wait_for_steps()
        run.running[number].send_signal(sent)
        left = 1 - number
        end = ended([run.running[left]], [run.logs[left]])
        run.running[number].kill()
        run.running[number].wait()
    else:
        # The others wait for it at the third checkpoint, so that the event is the twelfth step.
        run.wait_for_steps()
        end = run.end()
    whole(folder, 2)
    return {**end._asdict(), "continued": difference(reference, folder)}


def told_to_end(place: Path, reference: Path, counts: Sequence[int]) -> dict[str, Any]:
    """SIGTERM to process 1 of two; then the same command in other numbers of processes."""
    folder = place / "told" / "run"
    run = Launched(folder, 2)
    run.wait_for_steps()
    run.running[1].send_signal(signal.SIGTERM)
    found: dict[str, Any] = run.end()._asdict()
    steps = (folder / "metrics.jsonl").read_text().count("\n")
    found |= {"saved step": steps, "continued": {}}
    for count in counts:
        copy = place / f"told-{count}" / "run"
        shutil.copytree(folder, copy)
        whole(copy, count)
        found["continued"][str(count)] = difference(reference, copy)
    return found


def other_config(place: Path) -> End:
    """Two processes with different seeds."""
    more = {1: ["--config.seed=1"]}
    return Launched(place / "config" / "run", 2, more).end()


def other_data(place: Path) -> End:
    """Two hosts with different files under the same name."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 3
    x = rng.normal(size=(80, 5)).astype(np.float32)
    places = [place / "host-0", place / "host-1"]
    for number, host in enumerate(places):
        host.mkdir()
        x[7, 3] += number
        np.savez(host / "data.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    given = ["--config.data.source=npz", "--config.data.path=data.npz"]
    given += ["--config.data.num_candidates=0", "--config.coreset_size=9"]
    return Launched(place / "data" / "run", 2, {0: given, 1: given}, places=places).end()


def cut_link(place: Path) -> End:
    """Two network namespaces, whose link goes down in the middle of the selection."""
    hosts, ends = ("pbcs-0", "pbcs-1"), ("pbcs-a", "pbcs-b")
    commands = [f"netns add {host}" for host in hosts]
    commands.append(f"link add {ends[0]} type veth peer name {ends[1]}")
    for number, (host, end) in enumerate(zip(hosts, ends, strict=True)):
        commands.append(f"link set {end} netns {host}")
        commands.append(f"-n {host} addr add 10.77.0.{number + 1}/24 dev {end}")
        commands += [f"-n {host} link set {one} up" for one in (end, "lo")]
    names = [Path("/etc/netns", host) for host in hosts]
    try:
        for number, folder in enumerate(names):  # its own name is how a process is found by others
            folder.mkdir(parents=True)
            own = f"10.77.0.{number + 1} {socket.gethostname()}\n127.0.0.1 localhost\n"
            (folder / "hosts").write_text(own)
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
        run = Launched(place / "cut" / "run", 2, hosts=hosts)
        run.wait_for_steps()
        subprocess.run(["ip", "-n", hosts[0], "link", "set", ends[0], "down"], check=True)
        return run.end()
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], check=False)
        for folder in names:
            shutil.rmtree(folder, ignore_errors=True)
