"""Several devices and processes: the same selection as one, and what happens if one is lost.

    python -m benchmarks.hosts
    python -m benchmarks.hosts --parts=cut        needs root, and the command `ip` of iproute2

Everything runs on this machine, over loopback; `cut` has two network namespaces as two hosts. The
runs of the command line are of configs/mnist.py:smoke with 40 outer steps.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import host_runs, measure

_OUT = flags.DEFINE_string("out", "benchmarks/results/hosts.json", "Where the JSON goes.")
_PARTS = flags.DEFINE_list("parts", ["same", "differ", "lost", "told", "cut"], "What to run.")

LAYOUTS = ((1, 1), (1, 2), (1, 3), (1, 8), (2, 1), (4, 1), (2, 2))
"""Processes, and devices of each; the first is what the others are compared with."""


def same(place: Path) -> dict[str, Any]:
    """Every objective on every layout: the largest difference of probabilities, equal indices."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for count, devices in LAYOUTS:
        out = place / f"{count}x{devices}.npz"
        end = host_runs.workers(out, count, devices)
        if any(end.codes):
            raise RuntimeError(f"{out}: {end}\n{out.with_name(f'{out.stem}-0.log').read_text()}")
        with np.load(out) as arrays:
            found[f"{count} x {devices}"] = dict(arrays)
        print(f"{count} x {devices}: done", flush=True)
    first, *others = found
    table: dict[str, Any] = {}
    one = found[first]
    for name in dict.fromkeys(key.partition("/")[0] for key in one):
        table[name] = {
            other: {
                "probabilities": float(
                    np.abs(
                        one[f"{name}/probabilities"] - found[other][f"{name}/probabilities"]
                    ).max()
                ),
                "same indices": bool(
                    np.array_equal(one[f"{name}/indices"], found[other][f"{name}/indices"])
                ),
            }
            for other in others
        }
    rows = [
        [
            name,
            *(f"{of['probabilities']:.0e}" + "!" * (not of["same indices"]) for of in t.values()),
        ]
        for name, t in table.items()
    ]
    print(measure.markdown(["objective", *others], rows), flush=True)
    return table


def differ(place: Path) -> dict[str, Any]:
    """What happens where one process has another config, key or data."""
    ends = {
        what: host_runs.workers(place / f"differs-{what}.npz", 2, differs=what)
        for what in ("x", "y", "key")
    }
    ends["config of the command line"] = host_runs.other_config(place)
    ends["data of the command line"] = host_runs.other_data(place)
    for name in ("x", "y", "key"):
        logs = [place / f"differs-{name}-{number}.log" for number in (0, 1)]
        said = [log.read_text().splitlines()[-1] for log in logs]
        ends[name] = ends[name]._replace(lines=said)
    return {name: end._asdict() for name, end in ends.items()}


def lost(place: Path) -> dict[str, Any]:
    """What happens where a process is lost, and that the same command continues."""
    host_runs.whole(place / "reference", 2)
    return {name: host_runs.loss(place, name, place / "reference") for name in host_runs.EVENTS}


def told(place: Path) -> dict[str, Any]:
    """SIGTERM, and the rest of the run on other numbers of processes."""
    one = place / "one"
    host_runs.whole(one, 1)
    return host_runs.told_to_end(place, one, (1, 2, 4))


def main(_: list[str]) -> None:
    """Runs the parts; those that are not run keep their place in the JSON."""
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "same": same,
        "differ": differ,
        "lost": lost,
        "told": told,
        "cut": lambda place: host_runs.cut_link(place)._asdict(),
    }
    out = Path(_OUT.value)
    results = json.loads(out.read_text()) if out.exists() else {}
    results = {name: results[name] for name in parts if name in results}
    for name in _PARTS.value:
        with tempfile.TemporaryDirectory() as place:
            results[name] = parts[name](Path(place))
        print(name, json.dumps(results[name], indent=2), flush=True)
        measure.write(_OUT.value, "hosts", results)


if __name__ == "__main__":
    app.run(main)
