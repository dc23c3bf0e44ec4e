"""Every objective, estimator and baseline in 64-bit mode; `test_x64.py` runs it.

A process of its own: the mode is set before JAX starts, as users set it.
"""

import warnings

import jax
import numpy as np

import pbcs_jax as pbcs
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.baselines.inputs import INPUT_BASELINES, InputCandidates
from pbcs_jax.nets import MLP, ConvNet

warnings.simplefilter("error", FutureWarning)  # JAX's, of types that do not fit
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
Y = (X[:, 0] > 0).astype(int)
PICTURES = RNG.normal(size=(60, 28, 28, 1))
MODEL, INNER = MLP(num_classes=2, hidden=(8,)), pbcs.Inner(steps=4)
QUICK = {"outer_steps": 2, "num_masks": 4, "progress": False}
BY_KERNEL, BY_NETWORK = (
    {"objective": "kernel"} | QUICK,
    {"objective": "network", "inner": INNER} | QUICK,
)
ESTIMATORS = ("pge", "gumbel", "path", "hybrid")


def main() -> None:
    """Raises where 64 bits do not fit."""
    assert jax.config.jax_enable_x64
    for more in ({}, {"estimator": "hybrid"}, {"exchanges": 3}, {"embeddings": "ntk"}):
        pbcs.select_coreset(0, X, Y, MODEL, 8, **BY_KERNEL, **more)
    pbcs.select_coreset(0, X, Y, MODEL, 8, (X, Y), **BY_KERNEL, candidate_weight=1.0)
    assert pbcs.select_coreset(0, X, X[:, 0], None, 8, **BY_KERNEL).suspects is not None
    pbcs.select_coreset(0, PICTURES, Y, None, 8, **BY_KERNEL)
    for estimator in ESTIMATORS:
        found = pbcs.select_coreset(0, X, Y, MODEL, 8, **BY_NETWORK, estimator=estimator)
        assert found.indices.shape == (8,)
        found = pbcs.select_features(0, X, Y, MODEL, 2, **BY_NETWORK, estimator=estimator)
        assert found.indices.shape == (2,)
    in_batches = pbcs.Inner(steps=4, optimizer="adam", batch_size=4, tolerance=1e-9)
    found = pbcs.select_coreset(0, X, Y, MODEL, 8, **BY_NETWORK | {"inner": in_batches})
    assert found.suspects is not None
    pbcs.select_coreset(0, X, X[:, 0], MLP(1, (8,)), 8, **BY_NETWORK, loss_fn="squared_error")
    pbcs.select_coreset(0, X, Y, MODEL, 8, **BY_NETWORK | {"objective": "kernel_then_network"})
    pbcs.select_coreset(0, PICTURES, Y, ConvNet(num_classes=2, width=8), 8, **BY_NETWORK)
    for more in ({}, {"exchanges": 2}, {"validation": (X, Y)}):
        pbcs.select_features(0, X, Y, None, 2, **BY_KERNEL, **more)
    for baseline in BASELINES.values():
        assert len(baseline(0, Candidates(X, Y, 2, MODEL), 8)) in (8, 60)
    for baseline in INPUT_BASELINES.values():
        assert len(baseline(0, InputCandidates(X, Y), 2)) == 2
    data = [s.dtype for s in (found.probabilities, found.history["outer_loss"])]
    print("all is well in 64-bit mode:", *data)


if __name__ == "__main__":
    main()
