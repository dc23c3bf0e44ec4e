"""Which pixels of MNIST to keep: 10 to 200 of 784, against other ways to choose (Figures 2, 3).

python launch.py --config=configs/mnist_features.py            clean, five sizes, one seed
python launch.py --config=configs/mnist_features.py:noise      Gaussian noise 2.5 on all pixels
python launch.py --config=configs/mnist_features.py:patches    squares of 4x4 pixels
python launch.py --config=configs/mnist_features.py:network    judged by networks, as published

1,000 training images. Networks see the chosen pixels only, when they are trained and when they are
tested. The noise is on normalised pixels (mean 0, standard deviation 1 over all of MNIST), of the
training and the test images. `network` scores masks as the published code does, by an MLP trained
on the chosen pixels and applied to all of them; add --config.selection.outer_on=selected for the
loss on the chosen ones.
"""

from pbcs_jax.experiments import config as config_lib


def sizes(*values, more=""):
    """A point for each number of pixels."""
    return tuple(f"num_inputs={value}{more}" for value in values)


# The gradient in its proportions: Adam would raise what is noise to the size of what is not.
PATH = {
    "kernel.estimator": "path",
    "kernel.optimizer": "normalized_sgd",
    "kernel.num_masks": 4,
}
PRESETS = {
    "default": {
        **PATH,
        "kernel.learning_rate": 3.0,
        "kernel.outer_steps": 200,
        "kernel.exchanges": 100,
        # Many pixels tell the 1,000 images apart by chance; moved about, they do not.
        "sweep.points": (*sizes(10, 25, 50), *sizes(100, 200, more=" kernel.shifts=0.5")),
    },
    # Small and few steps: Adam's, and more of them, fitted the noise. Where many are chosen, pixels
    # learn from those beside them; of few, neighbours would all be chosen.
    "noise": {
        **PATH,
        "inputs.noise": 2.5,
        "kernel.learning_rate": 0.3,
        "kernel.outer_steps": 60,
        "sweep.points": (*sizes(10, 25, 50, 100), *sizes(200, more=" inputs.smooth=0.7")),
    },
    "patches": {"inputs.patch": 4, "sweep.points": sizes(4, 8, 12)},
    "network": {
        "selection.objective": "network",
        "selection.estimator": "hybrid",
        "selection.path_until": 0.5,
        "selection.outer_loss": "brier",
        "selection.learning_rate": 0.1,
        "selection.outer_steps": 150,
        "inner.batch_size": 100,
        "sweep.points": sizes(10, 25, 50, 100, 200),
    },
    "paper": {
        "selection.objective": "network",
        "selection.outer_steps": 2000,
        "inner.batch_size": 100,
        "inner.steps": 1000,
        "evaluation.num_seeds": 1,
        "sweep.points": sizes(10, 25, 50, 75, 100, 150, 200),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {
        "data.source": "bundled",
        "data.num_samples": 100,
        "kernel.samples": 50,
        "kernel.num_masks": 4,
        "kernel.outer_steps": 4,
        "kernel.shifts": 0.5,
        "kernel.exchanges": 2,
        "kernel.exchange_samples": 50,
        "evaluation.steps": 10,
        "checkpoint_every": 2,
        "num_inputs": 20,
    },
}


def get_config(preset=None):
    """The config of a preset."""
    return config_lib.choose_preset(preset, PRESETS, config_lib.features())
