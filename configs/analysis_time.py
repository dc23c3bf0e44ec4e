"""Time to choose coresets of several sizes, by PBCS and greedily (Figure 6 of the paper).

python launch.py --config=configs/analysis_time.py           of 1,000, minutes on two cores
python launch.py --config=configs/analysis_time.py:paper     of 10,000, for an accelerator

Each method chooses twice, and the second time counts, in seconds of all processors together. The
networks of `default` take 50 outer steps of 8 masks, and batches of 50 samples: with whole batches
each step of theirs would grow with the size.
"""

from pbcs_jax.configs import mnist

from pbcs_jax.experiments import config as config_lib


def sizes(*values):
    """A point for each size."""
    return tuple(f"coreset_size={value}" for value in values)


PRESETS = {
    "default": {
        "selection.outer_steps": 50,
        "inner.batch_size": 50,
        "evaluation.model": "mlp",
        "evaluation.steps": 50,
        "sweep.points": sizes(50, 100, 200, 400, 800),
    },
    "paper": {
        **mnist.PRESETS["paper"],
        "data.num_candidates": 10_000,
        "sweep.points": sizes(100, 200, 400, 600, 800, 1000),
    },
    "smoke": {
        **mnist.PRESETS["smoke"],
        "data.num_candidates": 100,
        "sweep.points": sizes(10),
        "methods": ("pbcs_kernel",),
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.analysis()
    config.analysis.kind = "time"
    config.data.num_validation = 100
    config.evaluation.num_seeds = 1
    config.methods = ("pbcs", "pbcs_kernel", "greedy")
    return config_lib.choose_preset(preset, PRESETS, config)
