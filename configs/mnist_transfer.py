"""Does a coreset of MNIST that was found for a ConvNet serve an MLP too? (Appendix of the paper.)

python launch.py --config=configs/mnist_transfer.py           100 of 1,000, three seeds
python launch.py --config=configs/mnist_transfer.py:paper     found with the ConvNet, accelerator

`default` finds it by ridge regression on features of small patches, which is neither net.
"""

from pbcs_jax.configs import mnist

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {"selection.objective": "kernel", "sweep.seeds": (0, 1, 2)},
    "paper": {"sweep.seeds": (0, 1, 2, 3, 4)},
    "smoke": {"sweep.seeds": (0,)},
}


def get_config(preset=None):
    """The config of a preset: that of configs/mnist.py, judged by the ConvNet and by the MLP."""
    config = mnist.get_config(preset)
    config.evaluation.model = "convnet"
    config.evaluation.transfer = ("mlp",)
    config.evaluation.num_seeds = 1
    return config_lib.choose_preset(preset, PRESETS, config)
