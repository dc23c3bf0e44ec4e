"""What a run survives: kills, signals, several processes, full disks, damaged files, bad values.

    python -m benchmarks.faults --out=benchmarks/results/faults.json
    python -m benchmarks.faults --short --only=kills,starts

Each part runs in a process of its own. What went wrong is printed on standard error.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNTS = {
    "kills": (100, 2),
    "SIGTERM": (25, 1),
    "SIGINT": (25, 1),
    "starts": (20, 1),
    "full disk": (10, 1),
    "damaged files": (500, 5),
    "configs": (1000, 100),
    "misuses": (0, 0),
    "data files": (60, 60),
    "soak": (100, 0),
}
"""How many of each: in full, and in short; 0 in short leaves a part out of it, unless it is so in
full too."""


def parts(place: Path, short: bool, scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is to be run, by name; `scale` is the share of the full counts."""
    from benchmarks import fault_files, fault_runs, fault_soak, fault_values

    of = fault_runs.References(place, attempts=1 if short or scale < 1 else 2)
    count = {name: round(counts[short] * scale) for name, counts in COUNTS.items()}
    return {
        "kills": lambda: fault_runs.kills(of, count["kills"]),
        "SIGTERM": lambda: fault_runs.kills(of, count["SIGTERM"], signal.SIGTERM),
        "SIGINT": lambda: fault_runs.kills(of, count["SIGINT"], signal.SIGINT),
        "starts": lambda: fault_runs.starts(of, count["starts"]),
        "full disk": lambda: fault_runs.full_disk(of, count["full disk"]),
        "damaged files": lambda: fault_files.damaged(of, count["damaged files"]),
        "configs": lambda: fault_values.fuzz(
            count["configs"], runs=0 if short else round(40 * scale)
        ),
        "misuses": fault_values.misuses,
        "data files": lambda: fault_files.bad_data(count["data files"]),
        "soak": lambda: fault_soak.soak(count["soak"]),
    }


def in_a_process(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a part returns, from a process of its own: this one must never open a device."""
    with tempfile.TemporaryFile("w+") as answer:
        if not (pid := os.fork()):
            try:
                json.dump(part(), answer)
                answer.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(pid, 0)
        answer.seek(0)
        return json.loads(answer.read() or '{"wrong": 1}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/results/faults.json")
    parser.add_argument("--short", action="store_true", help="few of each, for the tests")
    parser.add_argument(
        "--only",
        default="",
        help="names of parts, with commas between; the others stay as they are in the file",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the counts")
    flags = parser.parse_args()
    # Most of a small run is compilation; all of them share what they compiled.
    cache = os.path.join(tempfile.gettempdir(), f"pbcs_jax_{os.getuid()}")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
    # Imported here, before processes are forked, and never used in this one.
    for name in ("pbcs_jax.experiments", "matplotlib.pyplot", "sklearn.datasets"):
        importlib.import_module(name)
    from benchmarks import measure

    results: dict[str, Any] = {}
    if flags.only and os.path.exists(flags.out):
        results = json.loads(Path(flags.out).read_text())["parts"]
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        todo = parts(Path(place), flags.short, flags.scale)
        wanted = flags.only.split(",") if flags.only else list(todo)
        for name in wanted:
            if flags.short and not COUNTS[name][1] and COUNTS[name][0]:
                continue
            began = time.monotonic()
            results[name] = in_a_process(todo[name])
            results[name]["seconds"] = round(time.monotonic() - began, 1)
            shown = ", ".join(f"{what} {value}" for what, value in results[name].items())
            print(f"{name}: {shown}", file=sys.stderr, flush=True)
            measure.write(flags.out, "faults", {"parts": results})
    rows = [[name, ", ".join(f"{k}: {v}" for k, v in r.items())] for name, r in results.items()]
    print(measure.markdown(["part", "found"], rows))


if __name__ == "__main__":
    main()
