"""Which labels look wrong: `Result.suspects` of the default objective, and cleanlab.

    python -m benchmarks.suspects                                  bundled MNIST
    python -m benchmarks.suspects --npz=cifar10.npz                a file, pictures or a table

Symmetric noise on 1,000 candidates, beside the same 100 clean, balanced samples for both: cleanlab
gets them as further rows of the logistic regression whose cross-validated probabilities it ranks.
Average precision over all candidates; who is no suspect comes last. Only the votes are timed, and
not the choice of a coreset, which goes on after them.
"""

from typing import Any

import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.pages.peers import suspect_table
from benchmarks.peer_methods import FOLDS, clocks, load, logistic_regression
from benchmarks.peer_problems import read
from pbcs_jax import data
from pbcs_jax.portfolio.members import Member

_OUT = flags.DEFINE_string("out", "benchmarks/results/suspects.json", "Where the JSON goes.")
_NPZ = flags.DEFINE_string("npz", "", "A file with x_train, y_train, x_test, y_test.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "How many.", lower_bound=1)
RATES = (0.2, 0.5)
# One member and no judging: suspects do not depend on what is chosen.
VOTES = pbcs.Plan(4000, 250, 0, 0, (Member(start="stratified"),), 0, 2, 1)


def average_precision(order: np.ndarray, wrong: np.ndarray) -> float:
    """Of a ranking of all or some, the most suspect first.

    >>> average_precision(np.array([2, 0]), np.array([True, True, False]))
    0.25
    """
    hits = wrong[order]
    precisions = np.cumsum(hits) / np.arange(1, len(order) + 1)
    return float(np.sum(precisions * hits) / max(np.sum(wrong), 1))


def by_votes(problem: Any, seed: int) -> np.ndarray:
    """The order of `Result.suspects`."""
    found = pbcs.select_coreset(
        seed, problem.x, problem.y, size=10, validation=problem.validation, plan=VOTES
    )
    assert found.suspects is not None
    return found.suspects.indices


def by_cleanlab(problem: Any, seed: int) -> np.ndarray:
    """All candidates, those of the lowest label quality first."""
    x = np.concatenate([problem.x, problem.x_val])
    y = np.concatenate([problem.y, problem.y_val])
    selection = load("sklearn.model_selection")
    folds = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    rows = x.reshape(len(x), -1)
    probabilities = selection.cross_val_predict(
        logistic_regression(), rows, y, cv=folds, method="predict_proba"
    )
    scores = load("cleanlab.rank").get_label_quality_scores(y, probabilities)
    return np.argsort(scores[: len(problem.y)], kind="stable")


METHODS = {"pbcs: votes": by_votes, "cleanlab": by_cleanlab}


def main(argv: list[str]) -> None:
    """Measures, and prints a table in Markdown."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --npz, --seeds or --out")
    dataset = read(_NPZ.value or "mnist", 0)
    found: dict[str, Any] = {}
    for rate in RATES:
        for seed in range(_SEEDS.value):
            problem = data.make_problem(
                dataset,
                seed=seed,
                num_candidates=1000,
                num_validation=100,
                noise_kind="symmetric",
                noise_rate=rate,
            )
            for name, method in METHODS.items():
                began = clocks()
                order = method(problem, seed)
                seconds = float((clocks() - began)[0])
                row = {
                    "average_precision": average_precision(order, problem.y != problem.y_true),
                    "seconds": round(seconds, 2),
                }
                found.setdefault(f"{dataset.name}, noise {rate}", {}).setdefault(name, []).append(
                    row
                )
    print(suspect_table(found))
    measure.write(_OUT.value, "suspects", {"cells": found})


if __name__ == "__main__":
    app.run(main)
