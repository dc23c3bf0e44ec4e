"""MNIST with wrong labels or unbalanced classes: every method, and training on everything.

python launch.py --config=configs/mnist_corrupted.py           100 of 1,000 or fewer, three seeds
python launch.py --config=configs/mnist_corrupted.py:full      1,000 of 5,000 of MNIST, an hour
python launch.py --config=configs/mnist_corrupted.py:paper     Figure 1 of the paper, right

The paper's claim is that the coreset is better than the whole corrupted set. `default` and `paper`
train all for the same number of epochs, that is passes over what they are trained on; `full` for
the same number of steps, as many as the published code takes. `full` takes more images than are
bundled: add --config.data.source=tfds, or npz and its path.
"""

from pbcs_jax.configs import mnist, mnist_sizes

from pbcs_jax.experiments import config as config_lib


def noise(rates, more=""):
    """Points of both kinds of noise."""
    kinds = ("symmetric", "pairwise")
    return tuple(f"noise.kind={kind} noise.rate={rate}{more}" for kind in kinds for rate in rates)


def imbalance(factors, max_ratio=4.0, more=""):
    """Points of imbalance, with a bound on the coreset's own."""
    return tuple(f"imbalance.factor={f} selection.max_ratio={max_ratio}{more}" for f in factors)


# The path gradient covers all candidates at once, which many candidates need; and 100 validation
# images are soon fitted by so many samples, so that the candidates' own loss counts more.
HYBRID = {
    "selection.objective": "kernel",
    "kernel.estimator": "hybrid",
    "kernel.num_masks": 8,
    "kernel.outer_steps": 100,
    "kernel.learning_rate": 0.1,
    "kernel.candidate_weight": 3.0,
    "selection.max_ratio": 2.0,
}

# With right labels the kernel of trained networks is the better proxy, no sample has to be
# distrusted, and classes need no bound.
TRAINED = (
    " kernel.embeddings=trained_ntk kernel.candidate_loss=squared_error"
    " model.name=convnet model.dropout=0.5"
)

PRESETS = {
    "default": {
        "selection.objective": "kernel",
        "evaluation.batch_size": 100,
        "evaluation.epochs": 300,
        "evaluation.num_seeds": 1,
        "sweep.points": (
            *noise((0.2, 0.5)),
            *imbalance((10, 50), more=" data.num_candidates=3000"),
        ),
        "sweep.seeds": (0, 1, 2),
    },
    "full": {
        **HYBRID,
        "coreset_size": 1000,
        "data.num_candidates": 5000,
        "methods": ("pbcs", "uniform", "kcenter", "herding", "hardest", "greedy", "whole"),
        "evaluation.batch_size": 100,
        "evaluation.steps": 4000,
        "evaluation.num_seeds": 1,
        "sweep.points": (
            *noise((0.2, 0.5)),
            *imbalance(
                (50, 200), 0.0, f" data.num_candidates=20_000 evaluation.num_seeds=2{TRAINED}"
            ),
        ),
        "sweep.seeds": (0,),
    },
    "paper": {
        "coreset_size": 1000,
        "data.num_candidates": 0,
        "evaluation.batch_size": 256,
        "evaluation.epochs": 200,
        "evaluation.num_seeds": 1,
        "sweep.points": (
            *noise((0.1, 0.2, 0.3, 0.4, 0.5)),
            *imbalance((10, 20, 50, 100, 200)),
        ),
        "sweep.seeds": (0, 1, 2, 3, 4),
    },
    "smoke": {
        "data.num_candidates": 400,
        "sweep.points": (*noise((0.5,)), *imbalance((5,))),
        "sweep.seeds": (0,),
        "methods": ("pbcs", "uniform", "herding", "whole"),
    },
}


def get_config(preset=None):
    """The config of a preset: that of configs/mnist.py, with all methods, on corrupted data."""
    config = mnist.get_config("default" if preset == "full" else preset)
    config.methods = (*mnist_sizes.METHODS, "whole")
    config.data.num_validation = 100
    return config_lib.choose_preset(preset, PRESETS, config)
