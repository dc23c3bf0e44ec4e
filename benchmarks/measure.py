"""What the benchmarks share: interleaved timing, Markdown tables, JSON files."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax


def seconds(function: Callable[[], Any]) -> float:
    """How long one call takes, the computation included."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def medians(sides: Mapping[str, Callable[[], Any]], repeats: int) -> tuple[dict, dict]:
    """Median seconds of each side, the repeats interleaved; and what its first call took more."""
    first = {name: seconds(side) for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            times[name].append(seconds(side))
    median = {name: statistics.median(values) for name, values in times.items()}
    return median, {name: first[name] - median[name] for name in sides}


def markdown(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write(out: str, name: str, results: Mapping[str, Any], **versions: str) -> None:
    """The results with the command, the machine and the versions, whole or not at all."""
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "command": " ".join([f"python -m benchmarks.{name}", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "versions": {"jax": jax.__version__, **versions},
        **results,
    }
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(json.dumps(report, indent=2) + "\n")
    beside.replace(path)
