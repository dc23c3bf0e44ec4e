"""A coreset of 100 of 1,000 MNIST images, against uniform draws; both judged by a ConvNet.

    python launch.py --config=configs/mnist.py                 minutes on two cores
    python launch.py --config=configs/mnist.py:kernel          seconds: ridge regression selects
    python launch.py --config=configs/mnist.py:best            a few minutes, the best found here
    python launch.py --config=configs/mnist.py:paper           for an accelerator

The selection network of `default` is the MLP, whose inner loop is far cheaper than the ConvNet's;
its coreset serves the ConvNet too. `paper` selects with the ConvNet, as the published code does.
What each reaches stands in RESULTS.md.
"""

from typing import Any

from pbcs_jax.experiments import config as config_lib

# Ridge regression on the tangent kernel of ConvNets trained on random coresets, then exchanges.
BEST = {
    "selection.objective": "kernel",
    "kernel.embeddings": "trained_ntk",
    "kernel.estimator": "pge",
    "kernel.num_masks": 32,
    "kernel.outer_steps": 1500,
    "kernel.learning_rate": 0.04,
    "kernel.exchanges": 1000,
    "model.name": "convnet",
    "model.dropout": 0.5,
}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        # Cross-entropy of an over-confident model is ruled by a few points; the Brier score is not.
        "selection.outer_loss": "brier",
    },
    "kernel": {"selection.objective": "kernel"},
    "best": BEST,
    "paper": {
        "model.name": "convnet",
        "selection.num_masks": 5,
        "selection.outer_steps": 2000,
        "inner.steps": 300,
        "inner.optimizer": "adam",
        "inner.learning_rate": 0.005,
        "evaluation.steps": 4000,
    },
    "smoke": {
        "data.source": "bundled",
        "data.num_candidates": 200,
        "coreset_size": 20,
        "selection.num_masks": 4,
        "selection.outer_steps": 6,
        "inner.steps": 10,
        "evaluation.model": "mlp",
        "evaluation.steps": 20,
        "evaluation.num_seeds": 2,
        "checkpoint_every": 2,
    },
}


def get_config(preset=None):
    """The config of a preset."""
    return config_lib.choose_preset(preset, PRESETS, config_lib.summarization())
