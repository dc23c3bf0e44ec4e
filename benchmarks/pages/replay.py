"""Tables 1 and 2: memories of tasks and streams."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.pages.shared import DASH, load, published, spread, title

KINDS = {"normal": "clean", "20 % noise": "20 % noise", "imbalance 50": "imbalance 50"}
"""What a column of Tables 1 and 2 is called in the paper, and here."""


def kind_of(command: str) -> str:
    """Which of `KINDS` a command runs.

    >>> kind_of("python launch.py --config=configs/permmnist.py:noise --config.seed=1")
    '20 % noise'
    """
    preset = re.search(r"--config=\S+?\.py(?::(\w+))?(?:\s|$)", command)
    names = {"noise": "20 % noise", "imbalance": "imbalance 50"}
    return names.get(preset[1] or "", "normal") if preset else "normal"


def trained_on(command: str, everything: str) -> str:
    """On what a command trains its networks, and with which ridge, if it says so."""
    rows = "selected" if "train_on=selected" in command else everything
    ridge = re.search(r"kernel\.ridge=(\d+)", command)
    return rows + (f", ridge {ridge[1]}" if ridge else "")


def replay_table(file: str, table: str, everything: str) -> Callable[[], str]:
    """Tables 1 and 2 on PermMNIST: mean ± standard deviation, in brackets the number of seeds."""

    def made() -> str:
        lines: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
        for column in load(file)["columns"].values():
            for method, record in column["methods"].items():
                key = method, trained_on(record["command"], everything)
                lines.setdefault(key, {})[kind_of(record["command"])] = record
        shown = [kind for kind in KINDS if any(kind in own for own in lines.values())]
        rows = []
        for (method, rows_used), own in sorted(
            lines.items(), key=lambda line: line[0][0] != "pbcs"
        ):
            cells = [f"{title(method)}, {rows_used}"]
            for kind in shown:
                number = published(table, f"PermMNIST, {kind}").get(method)
                cells.append(_seeds(own[kind]) if kind in own else DASH)
                cells.append(DASH if number is None else f"{number:.2f}")
            wrong = own.get("20 % noise", {}).get("columns", {})
            texts = [wrong.get("wrong_labels", np.nan) * 100, wrong.get("wrong_labels_in_training")]
            cells.append(f"{texts[0]:.1f} / {texts[1]:.1f}" if wrong else DASH)
            rows.append(cells)
        heads = [part for kind in shown for part in (KINDS[kind], "published")]
        heads = ["method, trained on", *heads, "wrong in memory / training, %"]
        return measure.markdown(heads, rows)

    return made


def _seeds(record: Mapping[str, Any]) -> str:
    (runs,) = record["runs"].values()
    return f"{spread(runs, 2)} ({len(runs)})"
