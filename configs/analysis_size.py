"""Quality of coresets of several sizes under much noise and imbalance (Figure 4 of the paper).

python launch.py --config=configs/analysis_size.py           of 2,000, minutes on two cores
python launch.py --config=configs/analysis_size.py:paper     of all of MNIST, for an accelerator

The table and the figures show wrong labels (90 % of the candidates have noise), the gap between the
largest and the smallest class over the size (imbalance 200), and test accuracy.
"""

from pbcs_jax.configs import mnist, mnist_noise

from pbcs_jax.experiments import config as config_lib


def sizes(*values):
    """A point for each size and each kind of damage."""
    noisy = tuple(f"noise.kind=symmetric coreset_size={k} noise.rate=0.9" for k in values)
    return (*noisy, *(f"noise.kind=none coreset_size={k} imbalance.factor=200" for k in values))


PRESETS = {
    "default": {
        **mnist.PRESETS["default"],
        **mnist_noise.PRESETS["default"],
        "data.num_candidates": 2000,
        "evaluation.model": "mlp",
        "evaluation.num_seeds": 1,
        "sweep.points": sizes(25, 50, 100, 200),
    },
    "paper": {
        **mnist.PRESETS["paper"],
        "data.num_candidates": 0,
        "sweep.points": sizes(100, 200, 400, 600, 800, 1000),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {
        **mnist.PRESETS["smoke"],
        "data.num_candidates": 100,
        "evaluation.num_seeds": 1,
        "sweep.points": sizes(10)[:1],
        "methods": ("pbcs_kernel", "uniform"),
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.analysis()
    config.data.num_validation = 100
    return config_lib.choose_preset(preset, PRESETS, config)
