"""Coresets of MNIST of several sizes, by every method (Figure 1 of the paper, left).

python launch.py --config=configs/mnist_sizes.py           50, 100 and 200 of 1,000, three seeds
python launch.py --config=configs/mnist_sizes.py:full      100 of 10,000, five seeds, hours
python launch.py --config=configs/mnist_sizes.py:paper     of 10,000, for an accelerator

`full` takes more images than are bundled: add --config.data.source=tfds, or npz and its path.
"""

from pbcs_jax.configs import mnist

from pbcs_jax.experiments import config as config_lib

METHODS = (
    "pbcs",
    "uniform",
    "kcenter",
    "herding",
    "hardest",
    "greedy",
    "el2n",
    "forgetting",
    "craig",
    "moderate",
)


def sizes(*values):
    """A point for each size."""
    return tuple(f"coreset_size={value}" for value in values)


PRESETS = {
    "default": {
        **mnist.BEST,
        "evaluation.num_seeds": 1,
        "sweep.points": sizes(50, 100, 200),
        "sweep.seeds": (0, 1, 2),
    },
    "full": {
        **mnist.BEST,
        "data.num_candidates": 10_000,
        "evaluation.steps": 2000,
        "evaluation.transfer": ("mlp",),
        "evaluation.num_seeds": 1,
        "sweep.points": sizes(100),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "paper": {
        "data.num_candidates": 10_000,
        "evaluation.num_seeds": 1,
        "sweep.points": sizes(50, 100, 150, 200, 250, 1000),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {"sweep.points": sizes(10, 20), "sweep.seeds": (0, 1)},
}


def get_config(preset=None):
    """The config of a preset: that of configs/mnist.py, with all methods, at several sizes."""
    config = mnist.get_config("default" if preset == "full" else preset)
    config.methods = METHODS
    return config_lib.choose_preset(preset, PRESETS, config)
