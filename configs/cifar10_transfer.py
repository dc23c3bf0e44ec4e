"""Does a coreset of CIFAR-10 that was found for ResNet-18 serve ResNet-32? (Appendix.)

python launch.py --config=configs/cifar10_transfer.py           500 of 5,000, reduced
python launch.py --config=configs/cifar10_transfer.py:paper     4,000 of all, accelerator
"""

from pbcs_jax.configs import cifar10

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {"sweep.seeds": (0, 1)},
    "paper": {"sweep.seeds": (0, 1, 2, 3, 4)},
    "smoke": {"sweep.seeds": (0,)},
}


def get_config(preset=None):
    """The config of a preset: that of configs/cifar10.py, judged by both nets."""
    config = cifar10.get_config(preset)
    config.evaluation.transfer = ("resnet32",)
    return config_lib.choose_preset(preset, PRESETS, config)
