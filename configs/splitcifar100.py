"""SplitCIFAR-100: twenty tasks of five classes, all of their images, a memory of 2,000, ResNet-18.

    python launch.py --config=configs/splitcifar100.py             reduced: 500 images a task
    python launch.py --config=configs/splitcifar100.py:noise       20 % of the labels wrong
    python launch.py --config=configs/splitcifar100.py:imbalance   classes of 50 to 1
    python launch.py --config=configs/splitcifar100.py:paper       as published, for an accelerator

The data are those of tensorflow-datasets, or of a file, as for configs/cifar10.py.
"""

from pbcs_jax.configs import permmnist, splitcifar10

from pbcs_jax.experiments import config as config_lib

REDUCED = {**splitcifar10.REDUCED, "continual.task_size": 500}

PRESETS = {
    "default": {**REDUCED, "continual.keep": 0.9},
    "noise": {**REDUCED, **permmnist.NOISE},
    "imbalance": {**REDUCED, **permmnist.IMBALANCE},
    "paper": {
        "methods": permmnist.METHODS,
        "continual.betas": permmnist.BETAS,
        "continual.task_size": 0,
        "evaluation.num_seeds": 5,
    },
    "smoke": {
        **splitcifar10.PRESETS["smoke"],
        "continual.tasks": 20,
        "continual.task_size": 15,
        "data.num_validation": 100,
    },
}


def get_config(preset=None):
    """The config of a preset: that of configs/splitcifar10.py, with other data and sizes."""
    config = splitcifar10.get_config("default")
    config.data.name = "cifar100"
    config.memory_size = 2000
    config.continual.tasks = 20
    config.data.num_validation = 500
    config.evaluation.model, config.evaluation.width = "resnet18", 0
    config.evaluation.epochs = 400
    return config_lib.choose_preset(preset, PRESETS, config)
