"""Your own data: an npz file with x_train, y_train, x_test, y_test (pictures or tables).

    python launch.py --config=configs/npz.py --config.data.path=FILE.npz --config.coreset_size=200
    python launch.py --config=configs/npz.py:kernel ...     ridge regression alone, seconds
    python launch.py --config=configs/npz.py:paper ...      ConvNet selection, for an accelerator

`default` needs no settings: it compares several ways to choose for --config.time_budget=60 seconds,
see docs/guide/samples.md. --config.coreset_size=0 finds out how many samples are enough. The MLP
judges, since it takes any shape; for pictures, add --config.evaluation.model=convnet.
"""

from pbcs_jax.configs import mnist

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {"selection.objective": "auto", "evaluation.model": "mlp"},
    "kernel": {"evaluation.model": "mlp"},
    "paper": {},
    "smoke": {"selection.objective": "auto", "time_budget": 1.0, "coreset_size": 10},
}


def get_config(preset=None):
    """The config of a preset: that of configs/mnist.py, on all the rows of a file."""
    config = mnist.get_config(preset)
    config.data.source = "npz"
    config.data.name = ""
    config.data.num_candidates = 0
    return config_lib.choose_preset(preset, PRESETS, config)
