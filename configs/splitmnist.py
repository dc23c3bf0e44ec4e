"""SplitMNIST, Table 1: five tasks of two digits, 1,000 images each, a memory of 500, a ConvNet.

    python launch.py --config=configs/splitmnist.py             clean labels, 40 epochs
    python launch.py --config=configs/splitmnist.py:noise       20 % of the labels wrong
    python launch.py --config=configs/splitmnist.py:imbalance   classes of 50 to 1
    python launch.py --config=configs/splitmnist.py:small       a memory of 100
    python launch.py --config=configs/splitmnist.py:paper       400 epochs, all betas and methods

All of MNIST is needed: add --config.data.source=tfds, or npz and its path. `default` has a tenth of
the published epochs, which two cores can do.
"""

from pbcs_jax.configs import permmnist

from pbcs_jax.experiments import config as config_lib

SPLIT = {
    "continual.kind": "split",
    "continual.tasks": 5,
    "data.num_validation": 500,  # a hundred of each task
    "evaluation.model": "convnet",
    "evaluation.dropout": 0.5,
    "evaluation.num_seeds": 3,
    "memory_size": 500,
}
BETAS = {"continual.betas": (1.0, 10.0)}
SMOKE = {**permmnist.SMOKE, "continual.tasks": 5, "evaluation.width": 2, "data.num_validation": 50}

PRESETS = {
    "default": {"continual.keep": 0.9, "evaluation.epochs": 40, **BETAS},
    "noise": {**permmnist.NOISE, "evaluation.epochs": 40, **BETAS},
    "imbalance": {**permmnist.IMBALANCE, "evaluation.epochs": 40, **BETAS},
    "small": {"continual.keep": 0.9, "evaluation.epochs": 40, "memory_size": 100, **BETAS},
    "paper": {
        "methods": permmnist.METHODS,
        "continual.betas": permmnist.BETAS,
        "evaluation.num_seeds": 5,
        "sweep.points": permmnist.PRESETS["paper"]["sweep.points"],
    },
    "smoke": {**SMOKE, **permmnist.NOISE},
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.continual()
    config.update_from_flattened_dict(SPLIT)
    return config_lib.choose_preset(preset, PRESETS, config)
