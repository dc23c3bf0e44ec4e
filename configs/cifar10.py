"""CIFAR-10: a coreset, against uniform draws; judged by a ResNet-18.

python launch.py --config=configs/cifar10.py           500 of 5,000, ResNet-18 of width 16
python launch.py --config=configs/cifar10.py:paper     4,000 of all, full width, accelerator

There are no bundled images: tensorflow-datasets downloads them, or give Keras's arrays as a file,
--config.data.source=npz --config.data.path=cifar10.npz (x_train, y_train, x_test, y_test). The
`default` is reduced to what two cores can do: fewer candidates, a quarter of the width, ridge
regression in place of the network's own search.
"""

from typing import Any

from pbcs_jax.experiments import config as config_lib

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "selection.objective": "kernel",
        "data.num_candidates": 5000,
        "coreset_size": 500,
        "evaluation.width": 16,
        "evaluation.steps": 300,
        "evaluation.batch_size": 64,
        "evaluation.num_seeds": 1,
    },
    "paper": {
        "data.num_candidates": 0,
        "coreset_size": 4000,
        "selection.outer_steps": 2000,
        "selection.outer_batch": 5000,
        "inner.steps": 1600,
        "inner.batch_size": 256,
        "evaluation.steps": 20_000,
        "evaluation.batch_size": 256,
    },
    "smoke": {
        "data.num_candidates": 100,
        "coreset_size": 20,
        "selection.objective": "kernel",
        "kernel.outer_steps": 4,
        "evaluation.width": 2,
        "evaluation.steps": 4,
        "evaluation.num_seeds": 1,
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.summarization()
    config.data.name = "cifar10"
    config.model.name = "resnet18"
    config.evaluation.model = "resnet18"
    config.evaluation.dropout = 0.0
    config.selection.outer_loss = "brier"
    return config_lib.choose_preset(preset, PRESETS, config)
