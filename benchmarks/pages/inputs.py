"""Tables of chosen pixels."""

from collections.abc import Callable

import numpy as np

from benchmarks import measure
from benchmarks.pages.shared import bold, lead, load, per_seed, percent, spread, title


def input_title(method: str) -> str:
    """The name of a way to choose inputs, where greedy is the library's own."""
    return {"greedy": "greedy", "uniform": "random"}.get(method) or title(method)


def pixels(kind: str) -> Callable[[], str]:
    """Every method at five numbers of pixels; the best of each is bold."""

    def table() -> str:
        points = load("mnist_features")[kind]["points"]
        names = list(next(iter(points.values())))
        columns = [[per_seed(point[name]) for name in names] for point in points.values()]
        cells = [
            bold([spread(own) for own in column], [float(np.mean(own)) for own in column])
            for column in columns
        ]
        rows = [
            [input_title(name), *line, percent(float(np.mean([np.mean(c[i]) for c in columns])), 2)]
            for i, (name, line) in enumerate(zip(names, zip(*cells, strict=True), strict=True))
        ]
        counts = [point.partition("=")[2] for point in points]
        return measure.markdown([f"{kind}, pixels", *counts, "mean"], rows)

    return table


def pixel_leads() -> str:
    """The lead of PBCS with noisy pixels."""
    points, others = load("mnist_features")["noise"]["points"], ("mrmr", "f_score", "greedy")
    rows = [
        [point.partition("=")[2]]
        + [lead(per_seed(methods["pbcs"]), per_seed(methods[other])) for other in others]
        for point, methods in points.items()
    ]
    return measure.markdown(["pixels", *(f"over {input_title(other)}" for other in others)], rows)
