"""Strong scaling: the same selection on one core, and by two processes with a core each.

    python -m benchmarks.strong --cores=0,1

Seconds per outer step of a network objective, M = 8, the median of --steps steps: by the clock, and
of the processor, of the busier process. The second is what the work takes where cores are shared
with other programs; it leaves out waiting.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import host_runs, measure
from pbcs_jax import nets, processes

_OUT = flags.DEFINE_string("out", "benchmarks/results/strong.json", "Where the JSON goes.")
_CORES = flags.DEFINE_list("cores", ["0", "1"], "One per process; the first alone for one.")
_STEPS = flags.DEFINE_integer("steps", 6, "Outer steps after the first.")
_NET = flags.DEFINE_enum("net", "convnet", ["convnet", "mlp"], "ConvNet of width 8, or MLP.")
_INNER = flags.DEFINE_integer("inner", 100, "Steps of a training; 100 is the library's default.")
_ADDRESS = flags.DEFINE_list("address", [], "HOST:PORT, how many, number of this one: be one.")


def select() -> dict[str, float]:
    """Of this process, per step."""
    rng = np.random.default_rng(0)
    n = 2000
    x, y = rng.standard_normal((n, 28, 28, 1), np.float32), np.arange(n) % 10
    times = []
    net = nets.ConvNet(width=8) if _NET.value == "convnet" else nets.MLP()

    def look(state: Any, metrics: Any) -> None:
        jax.block_until_ready(state)
        times.append((time.monotonic(), time.process_time()))

    pbcs.select_coreset(
        *(0, x, y, net, 100, (x[:500], y[:500])),
        objective=pbcs.Network(pbcs.Inner(steps=_INNER.value)),
        num_masks=8,
        outer_steps=1 + _STEPS.value,
        callback=look,
        callback_every=1,
        progress=False,
    )
    clock, busy = (statistics.median(column) for column in np.diff(times, axis=0).T.tolist())
    return {"clock": clock, "processor": busy}


def together(cores: list[int]) -> dict[str, float]:
    """Of one process per core: the slowest."""
    port, running = host_runs.free_port(), []
    for number, core in enumerate(cores):
        address = f"localhost:{port},{len(cores)},{number}"
        command = [sys.executable, "-m", "benchmarks.strong", f"--address={address}"]
        command += [f"--{flag.name}={flag.value}" for flag in (_STEPS, _INNER, _NET)]
        running.append(
            subprocess.Popen(
                ["taskset", "-c", str(core), *command],
                env=host_runs.environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    found = [json.loads(one.communicate()[0].splitlines()[-1]) for one in running]
    return {name: max(one[name] for one in found) for name in found[0]}


def main(_: list[str]) -> None:
    """Prints a table; or, as one of the processes, its own times."""
    if _ADDRESS.value:
        coordinator, count, number = _ADDRESS.value
        if int(count) > 1:
            processes.start(coordinator, int(count), int(number))
        print(json.dumps(select()), flush=True)
        return
    cores = [int(core) for core in _CORES.value]
    found = {str(count): together(cores[:count]) for count in (1, len(cores))}
    one, both = found.values()
    rows = [
        [name, f"{one[name]:.2f}", f"{both[name]:.2f}", f"{one[name] / both[name]:.2f}x"]
        for name in one
    ]
    print(measure.markdown(["seconds per step", "1 process", f"{len(cores)}", "faster"], rows))
    path = Path(_OUT.value)
    others = json.loads(path.read_text())["nets"] if path.is_file() else {}
    own = {"load": os.getloadavg()[0], "inner": _INNER.value, "processes": found}
    measure.write(_OUT.value, "strong", {"nets": others | {_NET.value: own}})


if __name__ == "__main__":
    app.run(main)
