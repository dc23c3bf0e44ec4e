"""How a coreset evolves: 100 of 1,000 MNIST images, 90 % wrong labels (Figure 5 of the paper).

python launch.py --config=configs/analysis_evolution.py           minutes on two cores
python launch.py --config=configs/analysis_evolution.py:kernel    seconds: ridge regression selects
python launch.py --config=configs/analysis_evolution.py:paper     2,000 steps of ConvNets

The report has the histogram of the probabilities over time, as a picture and as a film, and the
wrong labels of the coreset over the outer steps.
"""

from pbcs_jax.configs import mnist, mnist_noise

from pbcs_jax.experiments import config as config_lib

PRESETS = {
    "default": {
        **mnist.PRESETS["default"],
        **mnist_noise.PRESETS["default"],
        "evaluation.num_seeds": 3,
    },
    "kernel": {"selection.objective": "kernel", "evaluation.num_seeds": 3},
    "paper": mnist.PRESETS["paper"],
    "smoke": {
        **mnist.PRESETS["smoke"],
        "data.num_candidates": 100,
        "coreset_size": 10,
        "evaluation.num_seeds": 1,
        "methods": ("pbcs", "uniform"),
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.analysis()
    config.analysis.kind = "evolution"
    config.noise.kind, config.noise.rate = "symmetric", 0.9
    config.data.num_validation = 100
    config.methods = ("pbcs", "greedy", "uniform")
    return config_lib.choose_preset(preset, PRESETS, config)
