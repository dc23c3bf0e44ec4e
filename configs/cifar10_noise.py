"""CIFAR-10 with wrong labels, 100 clean validation images: a coreset, uniform draws, everything.

python launch.py --config=configs/cifar10_noise.py           40 % symmetric noise, reduced
python launch.py --config=configs/cifar10_noise.py:paper     both kinds, 10 to 50 %, accelerator
"""

from pbcs_jax.configs import cifar10, mnist_corrupted

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": mnist_corrupted.HYBRID,
    "paper": {
        "coreset_size": 5000,
        "sweep.points": mnist_corrupted.noise((0.1, 0.2, 0.3, 0.4, 0.5)),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {},
}


def get_config(preset=None):
    """The config of a preset: that of configs/cifar10.py, with noise."""
    config = cifar10.get_config(preset)
    config.noise.kind = "symmetric"
    config.noise.rate = 0.4
    config.data.num_validation = 100
    return config_lib.choose_preset(preset, PRESETS, config)
