"""The problems of `benchmarks.peers`, and the judges of what is chosen."""

from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.peer_methods import load
from pbcs_jax import data, nets
from pbcs_jax.choices import Samples
from pbcs_jax.compute.plan import Compute
from pbcs_jax.experiments.judge import Judge
from pbcs_jax.inner.train import Inner
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective

CORRUPTIONS: dict[str, dict[str, Any]] = {
    "clean": {},
    "noise": {"noise_kind": "symmetric", "noise_rate": 0.5},
    "imbalance": {"imbalance_factor": 50.0},
}
SMALLEST = 16
"""The side of the smallest picture that the ConvNet takes."""


class Sizes(NamedTuple):
    """How much of a data set: candidates (0 is all), K, the validation set, inputs (0: none)."""

    candidates: int
    size: int
    validation: int = 100
    inputs: int = 0


SIZES = {
    "mnist": Sizes(1000, 100),
    "digits": Sizes(1000, 100),
    "breast_cancer": Sizes(0, 50, inputs=5),
    "wine": Sizes(0, 20, 30, inputs=3),
}


def read(name: str, seed: int) -> data.Dataset:
    """A data set by name, or an npz file by its path; scikit-learn's are split by the seed."""
    if name not in SIZES:
        return enlarged(data.load("npz", name="", path=name))
    if name == "mnist":
        return data.load("bundled", name="mnist")
    found = getattr(load("sklearn.datasets"), f"load_{name}")()
    x = found.images[..., None] if name == "digits" else found.data
    x, y = x.astype(np.float32), found.target.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 5])
    classes = np.arange(y.max() + 1)
    return enlarged(
        data.Dataset(x[train], y[train], x[test], y[test], classes, name, "scikit-learn")
    )


def enlarged(dataset: data.Dataset) -> data.Dataset:
    """Pictures that are too small for the ConvNet get each pixel repeated, for all methods."""
    if dataset.x_train.ndim < 4:
        return dataset
    times = -(-SMALLEST // min(dataset.x_train.shape[1:3]))
    larger = lambda x: x.repeat(times, axis=1).repeat(times, axis=2)  # noqa: E731
    return dataset._replace(x_train=larger(dataset.x_train), x_test=larger(dataset.x_test))


def problem_of(name: str, corruption: str, seed: int, sizes: Sizes) -> data.Problem:
    """The candidates. The validation set is held out of clean ones too, but not given."""
    return data.make_problem(
        read(name, seed),
        seed=seed,
        num_candidates=sizes.candidates,
        num_validation=sizes.validation,
        **CORRUPTIONS[corruption],
    )


def network_for(x: np.ndarray, num_classes: int) -> Any:
    """The judge's: that of the experiments for pictures, an MLP for tables."""
    if x.ndim == 4:
        return nets.ConvNet(num_classes=num_classes, dropout=0.5)
    return nets.MLP(num_classes=num_classes)


class Judges:
    """The accuracy of networks and of logistic regression that are trained on chosen rows."""

    def __init__(
        self, pool: Any, test: Any, num_classes: int, seed: int, networks: int, batch_size: int = 0
    ):
        """`pool` and `test` are `(x, y)`; of `pool` rows are chosen; 0 is all of them at once."""
        self._pool, self._test, self._networks = pool, test, networks
        rows = pool[0].reshape(len(pool[0]), -1)
        self._scale = load("sklearn.preprocessing").StandardScaler().fit(rows)
        model = as_model(network_for(pool[0], num_classes))
        inner = Inner(
            steps=300,
            batch_size=batch_size,
            optimizer="adam",
            learning_rate=0.002,
            weight_decay=0.001,
            shared_init=False,
        )

        def make(size, mesh):
            return network_objective(
                *(model, *pool, Samples((size,)), Network(inner, outer_loss="error_rate")),
                validation=test,
                compute=Compute(mesh),
            )

        self._judge = Judge(make, len(pool[1]), jax.random.key(1000 + seed))

    def __call__(self, chosen: np.ndarray) -> dict[str, float]:
        """By judge, between 0 and 1."""
        accuracies = [a for found in self._judge([chosen] * self._networks) for a in found]
        return {"network": float(np.mean(accuracies)), "logistic": self._logistic(chosen)}

    def _logistic(self, chosen: np.ndarray) -> float:
        (x, y), (x_test, y_test) = self._pool, self._test
        rows = lambda x: self._scale.transform(x.reshape(len(x), -1))  # noqa: E731
        if len(np.unique(y[chosen])) == 1:  # nothing to fit
            return float(np.mean(y_test == y[chosen][0]))
        fit = load("sklearn.linear_model").LogisticRegression(max_iter=1000)
        return float(fit.fit(rows(x[chosen]), y[chosen]).score(rows(x_test), y_test))
