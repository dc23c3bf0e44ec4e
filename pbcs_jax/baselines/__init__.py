"""Other ways to choose: `samples/` and `inputs/`, one file per method, one signature each."""

from pbcs_jax.baselines.samples import *  # noqa: F403
from pbcs_jax.baselines.samples import __all__ as __all__
