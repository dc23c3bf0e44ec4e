"""Regression with one option: coresets of scikit-learn's diabetes table against random draws.

    python -m benchmarks.regression

300 rows to choose from, 142 to test, five splits. The judges, ridge regression and small networks
of scikit-learn, are trained on the chosen rows only; their settings were fixed before the first
run. The error is the mean squared error on the test rows over the variance of all targets; a random
draw's is a mean over ten.
"""

import time
import warnings
from typing import Any

import numpy as np
from absl import app, flags
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.pages import speed
from pbcs_jax import nets

_OUT = flags.DEFINE_string("out", "benchmarks/results/regression.json", "Where the JSON goes.")
ROWS, SEEDS, DRAWS = 300, 5, 10


def errors(chosen: np.ndarray, x, y, x_test, y_test) -> dict[str, float]:
    """The test error by each judge."""
    scale, mean, std = StandardScaler().fit(x), y.mean(), y.std()
    inputs, targets = scale.transform(x[chosen]), (y[chosen] - mean) / std
    networks = [
        MLPRegressor(
            hidden_layer_sizes=(32,),
            max_iter=300,
            learning_rate_init=0.01,
            alpha=1.0,
            random_state=seed,
        )
        for seed in range(3)
    ]
    found = {}
    for name, models in {"ridge": [Ridge(1.0)], "networks": networks}.items():
        outputs = [m.fit(inputs, targets).predict(scale.transform(x_test)) for m in models]
        found[name] = float(np.mean([np.mean((o - (y_test - mean) / std) ** 2) for o in outputs]))
    return found


def at_seed(seed: int, size: int) -> dict[str, dict[str, float]]:
    """Errors, and seconds of the selection, by method."""
    x, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, test = order[:ROWS], order[ROWS:]
    data = (x[train], y[train], x[test], y[test])
    draws = [errors(rng.choice(ROWS, size, replace=False), *data) for _ in range(DRAWS)]
    found = {"random": {k: float(np.mean([d[k] for d in draws])) for k in draws[0]}}
    model = nets.MLP(num_classes=1, hidden=(32,))
    for objective in ("kernel", "network"):
        began = time.perf_counter()
        options: dict[str, Any] = {"objective": objective, "loss_fn": "squared_error"}
        chosen = pbcs.select_coreset(seed, *data[:2], model, size, **options).indices
        seconds = time.perf_counter() - began
        found[objective] = errors(chosen, *data) | {"seconds": seconds}
    return found


def main(_: list[str]) -> None:
    """Measures, prints a table and writes the JSON."""
    warnings.simplefilter("ignore")  # a network of the judge that could be trained for longer
    results: dict[str, Any] = {}
    for size in (20, 40):
        runs = [at_seed(seed, size) for seed in range(SEEDS)]
        results[str(size)] = runs
        measure.write(_OUT.value, "regression", results)
    print(speed.regression(results))


if __name__ == "__main__":
    app.run(main)
