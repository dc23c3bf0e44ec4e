"""CIFAR-10 whose largest class is many times its smallest, with 100 balanced validation images.

python launch.py --config=configs/cifar10_imbalance.py           factor 50, reduced
python launch.py --config=configs/cifar10_imbalance.py:paper     factors 10 to 200, accelerator
"""

from pbcs_jax.configs import cifar10, mnist_corrupted

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {"data.num_candidates": 20_000},
    "paper": {
        "coreset_size": 5000,
        "sweep.points": mnist_corrupted.imbalance((10, 20, 50, 100, 200)),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {"data.num_candidates": 300},
}


def get_config(preset=None):
    """The config of a preset: that of configs/cifar10.py, with imbalance."""
    config = cifar10.get_config(preset)
    config.imbalance.factor = 50.0
    config.selection.max_ratio = 2.0
    config.data.num_validation = 100
    return config_lib.choose_preset(preset, PRESETS, config)
