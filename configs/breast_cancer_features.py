"""Which measurements of a table to keep: scikit-learn's breast cancer data, 30 columns.

python launch.py --config=configs/breast_cancer_features.py

569 cells, of which a fifth are held out for the test; seconds for each number of columns. Put your
own table into an npz file, see configs/npz.py, and name it with --config.data.source=npz and
--config.data.path.
"""

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {
        "sweep.points": tuple(f"num_inputs={size}" for size in (2, 4, 8, 16)),
        "sweep.seeds": (0, 1, 2),
    },
    # The paper has no table of numbers; its protocol, five seeds and networks that judge, on this.
    "paper": {
        "selection.objective": "network",
        "inner.batch_size": 100,
        "sweep.points": tuple(f"num_inputs={size}" for size in (2, 4, 8, 16)),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {
        "kernel.outer_steps": 4,
        "evaluation.steps": 10,
        "num_inputs": 5,
        "checkpoint_every": 2,
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.features()
    config.data.source = "bundled"
    config.data.name = "breast_cancer"
    config.data.num_samples = 0
    return config_lib.choose_preset(preset, PRESETS, config)
