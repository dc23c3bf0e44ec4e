"""Your own data, more than memory holds: a folder of npy files, x_train.npy mapped into memory.

    python launch.py --config=configs/npy.py --config.data.path=FOLDER --config.coreset_size=1000
    python launch.py --config=configs/npy.py:paper ...      ConvNet selection, for an accelerator

The folder has x_train.npy, y_train.npy, x_test.npy and y_test.npy. An MLP selects, and only the
rows that masks choose are read, see docs/guide/data.md. How long a step takes with a million
candidates stands in docs/performance.md.
"""

from pbcs_jax.configs import npz

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    # Adam: plain SGD trains in the span of the coreset, whose decomposition costs more where K is
    # large.
    "default": {
        "selection.objective": "network",
        "inner.optimizer": "adam",
        "inner.learning_rate": 0.003,
        "selection.outer_batch": 1000,
    },
    "paper": {},
    "smoke": {"selection.objective": "network", "coreset_size": 10},
}


def get_config(preset=None):
    """The config of a preset: that of configs/npz.py, on the rows of a mapped file."""
    config = npz.get_config(preset)
    config.data.source = "npy"
    return config_lib.choose_preset(preset, PRESETS, config)
