"""The gradient mapping of the convergence theorem over time, for 1 to 16 masks (Appendix A).

python launch.py --config=configs/analysis_mapping.py           4 of 10 images, a minute or two
python launch.py --config=configs/analysis_mapping.py:paper     the same with more steps

All 1,024 masks are trained once, so that the expected loss, its gradient and the error of the
policy gradient are exact. Then Algorithm 1 runs, 64 times for each number of masks. The outer loss
is the error rate on 100 images, which has no gradient of its own. "mapping late" is the mean over
the last tenth of the steps, with its standard error over these runs.
"""

from pbcs_jax.experiments import config as config_lib
from pbcs_jax.experiments.analysis import MASKS

PRESETS = {
    "default": {"selection.outer_steps": 2000},
    "paper": {"selection.outer_steps": 20_000},
    "smoke": {
        "data.num_candidates": 5,
        "coreset_size": 2,
        "inner.steps": 5,
        "selection.outer_steps": 10,
        "analysis.repeats": 2,
        "evaluation.steps": 5,
        "methods": MASKS[:2],
    },
}


def get_config(preset=None):
    """The config of a preset."""
    config = config_lib.analysis()
    config.analysis.kind = "gradient_mapping"
    config.data.source = "bundled"
    config.data.num_candidates, config.coreset_size = 10, 4
    config.data.num_validation = 100
    config.selection.outer_loss = "error_rate"
    config.model.width, config.inner.steps = 32, 30
    config.evaluation.model, config.evaluation.steps = "mlp", 50
    config.evaluation.num_seeds = 1
    config.methods = MASKS
    return config_lib.choose_preset(preset, PRESETS, config)
