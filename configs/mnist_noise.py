"""MNIST with half of the labels wrong: 100 of 1,000, with 100 clean images as outer data.

    python launch.py --config=configs/mnist_noise.py           minutes on two cores
    python launch.py --config=configs/mnist_noise.py:paper     1,000 of all, for an accelerator

The hybrid estimator finds the wrong labels in far fewer steps than the policy gradient alone.
"""

from pbcs_jax.configs import mnist

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {
        "selection.estimator": "hybrid",
        # The biased pathwise part finds the good ones fast; the policy gradient then decides.
        "selection.path_until": 0.5,
        "selection.outer_steps": 150,
        "selection.learning_rate": 0.1,
        "inner.steps": 50,
    },
    # The candidates' own loss, which wrong labels do not lead astray, keeps the few validation
    # images from being fitted.
    "kernel": {"kernel.candidate_weight": 1.0},
    "paper": {"coreset_size": 1000, "data.num_candidates": 0},
    "smoke": {"selection.estimator": "hybrid"},
}


def get_config(preset=None):
    """The config of a preset: that of configs/mnist.py, with noise."""
    config = mnist.get_config(preset)
    config.noise.kind = "symmetric"
    config.noise.rate = 0.5
    config.data.num_validation = 100
    return config_lib.choose_preset(preset, PRESETS, config)
