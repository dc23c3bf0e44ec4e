"""Tables of speed, from what the benchmarks measure: they print these, and the pages show them."""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.measure import markdown

Found = Mapping[str, Any]
"""What a benchmark writes as JSON."""


def inner(found: Found) -> str:
    """Milliseconds per training step and mask, beside PyTorch."""
    first = found["rows"][0]
    ours = list(first["speedup"])
    rows = []
    for r in found["rows"]:
        ms, faster, compiling = r["milliseconds"], r["speedup"], r["compile_seconds"]
        rows.append(
            [r["net"], r["size"], r["masks"]]
            + [f"{value:.2f}" for value in ms.values()]
            + [f"{faster[name]:.1f}x" for name in ours]
            + [", ".join(f"{value:.1f}" for value in compiling.values())]
        )
    sides = ["PyTorch" if name == "torch" else name for name in first["milliseconds"]]
    columns = ["net", "K", "M", *(f"{name} ms" for name in sides)]
    return markdown([*columns, *(f"{name} faster" for name in ours), "compile s"], rows)


def outer(found: Found) -> str:
    """The outer loop's own work. "Update" is sampling, score and update together."""
    rows = []
    for r in found["rows"]:
        ms = {name: f"{value:.2f}" for name, value in r["milliseconds"].items()}
        over_sort, over_project = f"{r['project_over_sort']:.2f}", f"{r['move_over_project']:.2f}"
        error = f"{r['relative_error_of_the_sum']:.0e}"
        rows.append([f"{r['n']:.0e}", ms["sort"], ms["project"], over_sort, ms["move"]])
        rows[-1] += [over_project, ms["step"], error]
    columns = ["n", "numpy.sort ms", "project ms", "project / sort", "update ms"]
    return markdown([*columns, "update / project", "whole step ms", "error of the sum"], rows)


def scaling(found: Found) -> str:
    """One outer step as K, n and M grow."""
    rows = []
    for time in found["times"]:
        *setting, ms, over = time.values()
        rows.append([*setting, f"{ms:.2f}", f"{over:.2f}"])
    columns = ["varied", "net", "inner steps", "K", "n", "M", "ms per step", "over the first"]
    return markdown(columns, rows)


def peak_memory(found: Found) -> str:
    """The peak of a process."""
    rows = [[*list(m.values())[:4], f"{m['peak_megabytes']:.0f}"] for m in found["memory"]]
    return markdown(["estimator", "n", "M", "K", "peak MB of the process"], rows)


def baselines(found: Found) -> str:
    """Seconds of each baseline."""
    rows = [[r["method"], f"{r['first']:.1f}", f"{r['again']:.1f}"] for r in found["methods"]]
    return markdown(["method", "first, s", "again, s"], rows)


def growth(found: Found) -> str:
    """How the seconds of greedy grow with the size, beside PBCS with its kernel."""
    columns = ["size", "greedy first, s", "again, s", "PBCS (kernel) first, s", "again, s"]
    rows = [
        [r["size"], *(f"{r[side][call]:.1f}" for side in ("greedy", "pbcs") for call in r[side])]
        for r in found["growth"]
    ]
    return markdown(columns, rows)


def time_to_quality(found: Found) -> str:
    """Outer steps and seconds to a given validation loss."""
    columns = ["estimator", "reached", "outer steps", "seconds", "share of time"]
    rows = found["rows"]
    cells = [[*list(r.values())[:3], f"{r['seconds']:.1f}", f"{r['share']:.2f}"] for r in rows]
    return markdown(columns, cells)


def kernel(found: Found) -> str:
    """Medians of the seconds of a selection by the kernel."""
    medians = {name: statistics.median(values) for name, values in found["seconds"].items()}
    first = next(iter(medians.values()))
    rows = [(name, f"{value:.1f}", f"{first / value:.1f}x") for name, value in medians.items()]
    return markdown(("side", "seconds", "faster"), rows)


def compilation(found: Found) -> str:
    """Seconds of tracing, lowering and compiling the main job."""
    parts = ("total", "trace", "lower", "compile")
    rows = [[kind, *(f"{found[kind][part]:.1f}" for part in parts)] for kind in ("cold", "warm")]
    heads = ["all, s", *(f"{part}, s" for part in parts[1:])]
    return markdown(["compilation cache", *heads], rows)


def regression(found: Found) -> str:
    """Mean squared errors over the variance of the targets."""
    rows, judges = [], ("ridge", "networks")
    for size, runs in ((key, found[key]) for key in found if key.isdigit()):
        for name in runs[0]:
            cells = [f"{np.mean([run[name][judge] for run in runs]):.3f}" for judge in judges]
            better = [sum(run[name][j] < run["random"][j] for run in runs) for j in judges]
            won = "" if name == "random" else f"{min(better)} of {len(runs)}"
            rows.append([size, name, *cells, won])
    heads = ["rows", "method", "ridge regression", "networks", "better than random, seeds"]
    return markdown(heads, rows)


def replay(found: Found) -> str:
    """Samples per second of the memories, and what they are worth."""
    rows = [
        [
            name,
            *(f"{r[key]:,.0f}" for key in ("samples_per_second", "samples_per_processor_second")),
            f"{100 * r['accuracy']:.1f}",
        ]
        for name, r in found["memories"].items()
    ]
    columns = ["memory of 1,000", "samples per second", "per second of processor time"]
    return markdown([*columns, "accuracy, %"], rows)
