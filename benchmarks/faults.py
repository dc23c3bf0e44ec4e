"""What a run survives: kills, signals, several processes, full disks, damaged files, bad values.

    python -m benchmarks.faults --out=benchmarks/results/faults.json
    python -m benchmarks.faults --short --only=kills,starts
    python -m benchmarks.faults --resume        goes on where an earlier call was interrupted

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
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

COUNTS = {
    "kills": (100, 2),
    "SIGTERM": (25, 1),
    "SIGINT": (25, 1),
    "starts": (20, 1),
    "full disk": (10, 1),
    "damaged files": (500, 5),
    "configs": (1000, 100),
    "data files": (60, 60),
    "soak": (100, 0),
}
"""How many of each: in full, and in short; 0 leaves a part out."""


class Part(NamedTuple):
    """A part of the whole.

    Attributes:
      cases: how many.
      run: some of them, by their numbers.
      batch: how many before the results are written; 0 is all of them.
      prepare: what is called in this process before any of them.
    """

    cases: int
    run: Callable[[range], dict[str, Any]]
    batch: int = 0
    prepare: Callable[[], Any] = lambda: None


def parts(place: Path, short: bool, scale: float) -> dict[str, Part]:
    """What is to be run, by name; `scale` is the share of the full counts."""
    from benchmarks import fault_files, fault_runs, fault_soak, fault_values

    count = {name: round(counts[short] * scale) for name, counts in COUNTS.items()}

    @cache
    def of() -> fault_runs.References:
        kinds = fault_runs.KINDS[: 3 if short else None]  # no more of them have a case
        return fault_runs.References(place, 1 if short or scale < 1 else 2, kinds)

    def signals(name: str, number: int) -> Part:
        each = min(fault_runs.EACH, count[name])
        kills = lambda numbers: fault_runs.kills(of(), numbers, each, number)  # noqa: E731
        return Part(-(-count[name] // max(each, 1)), kills, 1, of)

    points, runs = count["full disk"], 0 if short else round(40 * scale)
    full_disk = lambda numbers: fault_runs.full_disk(of(), numbers, points)  # noqa: E731
    damaged = lambda numbers: fault_files.damaged(of(), numbers)  # noqa: E731
    starts = lambda numbers: fault_runs.starts(of(), numbers)  # noqa: E731
    return {
        "kills": signals("kills", signal.SIGKILL),
        "SIGTERM": signals("SIGTERM", signal.SIGTERM),
        "SIGINT": signals("SIGINT", signal.SIGINT),
        "starts": Part(count["starts"], starts, 1, of),
        "full disk": Part(points, full_disk, 1, of),
        "damaged files": Part(count["damaged files"], damaged, 10, of),
        "configs": Part(count["configs"], lambda all_: fault_values.fuzz(len(all_), runs)),
        "misuses": Part(1, lambda _: fault_values.misuses()),
        "data files": Part(count["data files"], lambda all_: fault_files.bad_data(len(all_))),
        "soak": Part(count["soak"], lambda all_: fault_soak.soak(len(all_))),
    }


def run(name: str, part: Part, results: dict[str, Any], write: Callable[[], None]) -> None:
    """Runs what `results[name]` does not hold yet, and writes after each batch."""
    found = results.setdefault(name, {"cases": 0})
    while found["cases"] < part.cases:
        part.prepare()
        began, first = time.monotonic(), found["cases"]
        numbers = range(first, min(first + (part.batch or part.cases), part.cases))
        new = in_a_process(partial(part.run, numbers))
        new |= {"cases": len(numbers), "seconds": round(time.monotonic() - began, 1)}
        for what, value in new.items():
            known = found.get(what, 0)
            found[what] = value if isinstance(value, str) else round(known + value, 3)
        write()


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
    parser.add_argument("--resume", action="store_true", help="go on with what the file holds")
    flags = parser.parse_args()
    # Most of a small run is compilation; all of them share what they compiled.
    compiled = os.path.join(tempfile.gettempdir(), f"pbcs_jax_{os.getuid()}")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", compiled)
    # Imported here, before processes are forked, and never used in this one.
    for name in ("pbcs_jax.experiments", "matplotlib.pyplot", "sklearn.datasets"):
        importlib.import_module(name)
    from benchmarks import measure

    results: dict[str, Any] = {}
    if (flags.only or flags.resume) and os.path.exists(flags.out):
        results = json.loads(Path(flags.out).read_text())["parts"]
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        todo = parts(Path(place), flags.short, flags.scale)
        for name in flags.only.split(",") if flags.only else todo:
            if not todo[name].cases:
                continue
            if not flags.resume:
                results.pop(name, None)
            run(
                *(name, todo[name], results),
                lambda: measure.write(flags.out, "faults", {"parts": results}),
            )
            shown = ", ".join(f"{what} {value}" for what, value in results[name].items())
            print(f"{name}: {shown}", file=sys.stderr, flush=True)
    rows = [[name, ", ".join(f"{k}: {v}" for k, v in r.items())] for name, r in results.items()]
    print(measure.markdown(["part", "found"], rows))


if __name__ == "__main__":
    main()
