"""SplitMNIST as a stream, Table 2: chunks of 125, a memory of 100 in ten slots, a ConvNet.

    python launch.py --config=configs/streaming_splitmnist.py           clean labels
    python launch.py --config=configs/streaming_splitmnist.py:noise     20 % of the labels wrong
    python launch.py --config=configs/streaming_splitmnist.py:paper     both, all methods and betas

All of MNIST is needed: add --config.data.source=tfds, or npz and its path.
"""

from pbcs_jax.configs import permmnist, splitmnist, streaming_permmnist

from pbcs_jax.experiments import config as config_lib

BETAS = {"continual.betas": (0.1, 1.0)}

PRESETS = {
    "default": {"continual.keep": 0.9, **BETAS},
    "noise": {**permmnist.NOISE, **BETAS},
    "imbalance": {**permmnist.IMBALANCE, **BETAS},
    "paper": {**streaming_permmnist.PRESETS["paper"], "evaluation.num_seeds": 5},
    "smoke": {
        **splitmnist.SMOKE,
        **permmnist.NOISE,
        "stream.chunk": 20,
        "stream.slots": 2,
        "methods": ("pbcs", "reservoir", "herding"),
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.streaming()
    config.update_from_flattened_dict({**splitmnist.SPLIT, "memory_size": 100})
    return config_lib.choose_preset(preset, PRESETS, config)
