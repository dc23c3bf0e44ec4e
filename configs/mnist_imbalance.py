"""MNIST whose largest class is 50 times its smallest, with 100 balanced images as outer data.

python launch.py --config=configs/mnist_imbalance.py           minutes on two cores
python launch.py --config=configs/mnist_imbalance.py:paper     1,000 of all, for an accelerator
"""

from pbcs_jax.configs import mnist

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    # Of 3,000 candidates 846 are left when the classes have been thinned out.
    "default": {"selection.estimator": "hybrid", "data.num_candidates": 3000},
    "kernel": {"data.num_candidates": 3000},
    "paper": {"coreset_size": 1000, "data.num_candidates": 0},
    "smoke": {"selection.estimator": "hybrid"},
}


def get_config(preset=None):
    """The config of a preset: that of configs/mnist.py, with imbalance."""
    config = mnist.get_config(preset)
    config.imbalance.factor = 50.0
    config.data.num_validation = 100
    config.selection.max_ratio = 2.0
    return config_lib.choose_preset(preset, PRESETS, config)
