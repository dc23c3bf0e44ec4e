"""The classes in scikit-learn's style: its own checks, pipelines, and data of any kind."""

from sklearn.utils.estimator_checks import parametrize_with_checks

import pbcs_jax as pbcs

QUICK = {"outer_steps": 2, "num_masks": 2, "ridge": 0.1}
QUICK_INPUTS = {"outer_steps": 2, "num_masks": 2, "ridge": 0.1, "bandwidth": 1.0, "samples": 20}


@parametrize_with_checks(
    [pbcs.CoresetSelector(0.5, options=QUICK), pbcs.InputSelector(1, options=QUICK_INPUTS)]
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
