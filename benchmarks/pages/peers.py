"""Tables beside other packages and beside our own presets."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks import measure, peer_tables
from benchmarks.pages.shared import load, percent


def suspects() -> str:
    """The same of both files."""
    files = ("suspects", "suspects_cifar10")
    return suspect_table({cell: own for f in files for cell, own in load(f)["cells"].items()})


def suspect_table(cells: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """Average precision of the candidates ranked by how wrong their labels look."""
    rows = []
    for cell, methods in cells.items():
        for name, runs in methods.items():
            own = [run["average_precision"] for run in runs]
            error = peer_tables.score(own).error
            text = percent(float(np.mean(own))) + (f" ± {percent(error)}" if error else "")
            seconds = np.mean([run["seconds"] for run in runs])
            rows.append([cell, name, len(own), text, f"{seconds:.1f}"])
    return measure.markdown(["cell", "method", "seeds", "average precision, %", "seconds"], rows)


def presets() -> str:
    """'auto' beside our own presets, in their time."""
    names = {"clean": "mnist:best", "50 % noise": "mnist_noise:kernel"}
    names["imbalance 50"] = "mnist_imbalance:kernel"
    found, rows = load("auto")["parts"]["presets"], []
    for problem, preset in names.items():
        line = [problem, f"`{preset}`"]
        for side in ("preset", "auto"):
            own = [run[side] for run in found[problem].values()]
            score = peer_tables.score([run["network"] for run in own])
            seconds = [np.mean([run[key] for run in own]) for key in ("seconds", "compile_seconds")]
            line.append(f"{percent(score.mean)} ± {percent(score.error or 0.0)}")
            line.append(" + ".join(f"{value:.0f}" for value in seconds))
        rows.append(line)
    clock = "seconds + compiling"
    return measure.markdown(["problem", "preset", "its accuracy", clock, "auto", clock], rows)


def peers(name: str, seeds: int) -> Callable[[], str]:
    """Every method of one data set, beside other packages."""

    def table() -> str:
        from benchmarks import peer_methods

        found = load("peers")["cells"]
        cells = [cell for cell in found if cell.startswith(f"{name}, ")]
        known = [peer_tables.VALIDATION, *peer_methods.SAMPLES]
        rows = [method for method in known if any(method in found[cell] for cell in cells)]
        uses = {label: method.uses_validation for label, method in peer_methods.SAMPLES.items()}
        return peer_tables.table(found, cells, rows, seeds, uses)

    return table
