"""PermMNIST as a stream, Table 2: chunks of 125, a memory of 100 in ten slots, an MLP.

    python launch.py --config=configs/streaming_permmnist.py           clean labels
    python launch.py --config=configs/streaming_permmnist.py:noise     20 % of the labels wrong
    python launch.py --config=configs/streaming_permmnist.py:paper     both, all methods and betas

All of MNIST is needed: add --config.data.source=tfds, or npz and its path. The reservoirs and
merge-reduce by herding see the same chunks; minutes on two cores.
"""

from pbcs_jax.configs import permmnist

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {"continual.keep": 0.9, "continual.betas": (0.001, 0.01, 0.1)},
    "noise": {**permmnist.NOISE, "continual.betas": (0.001, 0.01, 0.1)},
    "imbalance": permmnist.IMBALANCE,
    "paper": {
        "methods": ("pbcs", "reservoir", "cbrs", "greedy", "herding", "uniform"),
        "continual.betas": permmnist.BETAS,
        "sweep.points": ("continual.keep=0.9", "noise.kind=symmetric noise.rate=0.2"),
    },
    "smoke": {
        **permmnist.SMOKE,
        **permmnist.NOISE,
        "stream.chunk": 20,
        "stream.slots": 2,
        "methods": ("pbcs", "cbrs", "uniform"),
    },
}


def get_config(preset=None):
    """The config of a preset."""
    return config_lib.choose_preset(preset, PRESETS, config_lib.streaming())
