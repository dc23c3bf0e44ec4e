"""Coresets of CIFAR-10 of several sizes, by every method (Figure 1 of the paper, left).

python launch.py --config=configs/cifar10_sizes.py           250, 500, 1,000 of 5,000, reduced
python launch.py --config=configs/cifar10_sizes.py:paper     1,000 to 5,000 of all, accelerator
"""

from pbcs_jax.configs import cifar10, mnist_sizes

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {"sweep.points": mnist_sizes.sizes(250, 500, 1000), "sweep.seeds": (0, 1)},
    "paper": {
        "sweep.points": mnist_sizes.sizes(1000, 2000, 3000, 4000, 5000),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {"sweep.points": mnist_sizes.sizes(10, 20), "sweep.seeds": (0,)},
}


def get_config(preset=None):
    """The config of a preset: that of configs/cifar10.py, with all methods, at several sizes."""
    config = cifar10.get_config(preset)
    config.methods = mnist_sizes.METHODS
    return config_lib.choose_preset(preset, PRESETS, config)
