"""PermMNIST, Table 1: ten tasks of 1,000 images with permuted pixels, a memory of 100, an MLP.

    python launch.py --config=configs/permmnist.py             clean labels
    python launch.py --config=configs/permmnist.py:noise       20 % of the labels wrong
    python launch.py --config=configs/permmnist.py:imbalance   classes of 50 to 1
    python launch.py --config=configs/permmnist.py:paper       all betas and all methods

All of MNIST is needed: add --config.data.source=tfds, or npz and its path. With
--config.continual.train_on=selected each method also chooses what a task is trained on. A method
and seed take about half a minute on two idle cores and PBCS's own choices as long.
"""

from pbcs_jax.experiments import config as config_lib

NOISE = {"noise.kind": "symmetric", "noise.rate": 0.2}
IMBALANCE = {"imbalance.factor": 50.0, "continual.keep": 1.0}
BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
METHODS = (
    *("pbcs", "uniform", "kcenter", "hardest", "herding", "greedy"),
    *("gradient_matching", "reservoir", "cbrs", "der++"),
)
SMOKE = {
    "data.source": "bundled",
    "memory_size": 20,
    "continual.tasks": 2,
    "continual.task_size": 60,
    "kernel.outer_steps": 4,
    "evaluation.epochs": 3,
    "evaluation.num_seeds": 2,
    "methods": ("pbcs", "uniform", "cbrs", "der++"),
}

PRESETS = {
    # Nearly all labels are right: a few odd ones are left out.
    "default": {"continual.keep": 0.9},
    "noise": NOISE,
    "imbalance": IMBALANCE,
    "refilled": {**IMBALANCE, "continual.imbalance": "refilled"},
    "paper": {
        "methods": METHODS,
        "continual.betas": BETAS,
        "sweep.points": (
            *(
                f"{column} continual.train_on={rows}"
                for rows in ("task", "selected")
                for column in (
                    "continual.keep=0.9",
                    "noise.kind=symmetric noise.rate=0.2",
                    "imbalance.factor=50.0",
                    "imbalance.factor=50.0 continual.imbalance=refilled",
                )
            ),
        ),
    },
    "smoke": {**SMOKE, **NOISE},
}


def get_config(preset=None):
    """The config of a preset."""
    return config_lib.choose_preset(preset, PRESETS, config_lib.continual())
