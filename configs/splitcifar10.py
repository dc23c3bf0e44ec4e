"""SplitCIFAR-10, Table 1: five tasks of two classes, 1,000 images each, a memory of 200, ResNet-18.

    python launch.py --config=configs/splitcifar10.py             reduced: ConvNet-16, 20 epochs
    python launch.py --config=configs/splitcifar10.py:noise       20 % of the labels wrong
    python launch.py --config=configs/splitcifar10.py:imbalance   classes of 50 to 1
    python launch.py --config=configs/splitcifar10.py:paper       ResNet-18, 400 epochs, accelerator

The data are those of configs/cifar10.py. PBCS selects by ridge regression on patches.
"""

from pbcs_jax.configs import permmnist, splitmnist

from pbcs_jax.experiments import config as config_lib

REDUCED = {"evaluation.model": "convnet", "evaluation.width": 16, "evaluation.epochs": 20}
PICTURES = {"data.source": "auto", "evaluation.model": "convnet"}

PRESETS = {
    "default": {**REDUCED, "continual.keep": 0.9, "continual.betas": (0.1, 1.0)},
    "noise": {**REDUCED, **permmnist.NOISE, "continual.betas": (0.1, 1.0)},
    "imbalance": {**REDUCED, **permmnist.IMBALANCE, "continual.betas": (0.1, 1.0)},
    "paper": splitmnist.PRESETS["paper"],
    "smoke": {
        **splitmnist.SMOKE,
        **PICTURES,
        **permmnist.NOISE,
        "continual.task_size": 40,
        "evaluation.num_seeds": 1,
        "kernel.embeddings": "relu_ntk",  # patches are compiled anew for each task
        "methods": ("pbcs", "uniform"),
    },
}


def get_config(preset=None):
    """The config of a preset: that of configs/splitmnist.py, with other data and networks."""
    config = splitmnist.get_config("paper")
    config.sweep.points = ()
    config.methods = ("pbcs", "uniform", "kcenter", "hardest", "herding", "greedy")
    config.continual.betas = (0.01,)
    config.data.name = "cifar10"
    config.memory_size = 200
    config.evaluation.model, config.evaluation.dropout = "resnet18", 0.0
    config.evaluation.num_seeds = 3
    config.kernel.embeddings = "patches"
    return config_lib.choose_preset(preset, PRESETS, config)
