"""What the tables of the pages share: names, numbers as text, and the committed JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DASH = "\N{EN DASH}"
NAMES = {
    "pbcs": "**PBCS**",
    "whole": "full-data training",
    "greedy": "greedy bilevel (Borsos et al.)",
    "herding": "herding (iCaRL)",
    "kcenter": "k-center",
    "craig": "CRAIG",
    "el2n": "EL2N",
    "f_score": "F-score",
    "mrmr": "mRMR",
    "mutual_information": "mutual information",
    "cbrs": "CBRS",
    "der++": "DER++",
    "gradient_matching": "gradient matching",
}
"""What a method is called on a page; others have their own name."""


def load(name: str) -> Any:
    """One file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def title(method: str) -> str:
    """The name of a method on a page."""
    return NAMES.get(method, method)


def percent(value: float, digits: int = 1) -> str:
    """
    >>> percent(0.9571, 2)
    '95.71'
    """
    return f"{100 * value:.{digits}f}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation in percent.

    >>> spread([0.9, 0.92])
    '91.0 ± 1.0'
    """
    return f"{percent(float(np.mean(values)), digits)} ± {percent(float(np.std(values)), digits)}"


def lead(own: Sequence[float], other: Sequence[float], digits: int = 2) -> str:
    """The mean difference in points ± its standard error, over the seeds that both have.

    >>> lead([0.93, 0.95], [0.91, 0.91, 0.5])
    '+3.00 ± 1.00'
    """
    pairs = 100 * np.array([a - b for a, b in zip(own, other, strict=False)])
    error = np.std(pairs, ddof=1) / np.sqrt(len(pairs))
    return f"{np.mean(pairs):+.{digits}f} ± {error:.{digits}f}"


def per_seed(record: Mapping[str, Any]) -> list[float]:
    """Accuracy with each seed, of a record with the networks of each, or with their means."""
    if "networks" in record:
        return [float(np.mean(own)) for own in record["networks"]]
    return list((record.get("test_accuracy") or record)["runs"])


def bold(texts: Sequence[str], values: Sequence[float]) -> list[str]:
    """The texts, that of the largest value in bold."""
    best = max(values)
    pairs = zip(texts, values, strict=True)
    return [f"**{text}**" if value == best else text for text, value in pairs]


def ordered(by_method: Mapping[str, Any]) -> list[str]:
    """Methods, the best first."""
    return sorted(by_method, key=lambda name: -np.mean(per_seed(by_method[name])))


def published(table: str, setting: str) -> dict[str, float]:
    """What the paper has, by method."""
    paper = json.loads((ROOT / "pbcs_jax" / "report" / "paper.json").read_text("utf-8"))
    (item,) = (one for one in paper["items"] if one["name"] == table)
    (row,) = (one for one in item["rows"] if one["setting"] == setting)
    return row["published"]
