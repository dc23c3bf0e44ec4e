"""The outer loop's settings, checked where they are made."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from pbcs_jax.errors import check_known, check_number
from pbcs_jax.outer import estimators, optimizers
from pbcs_jax.outer.base import Estimator

SIZE_SCHEDULES = ("constant", "cubic")
FINALS = ("top_k", "sample")
# The shrinking size falls between these fractions of the outer steps.
_FALL_FROM, _FALL_TO = 0.16, 0.60
_SETTLE_FROM = 0.5


@dataclasses.dataclass(frozen=True)
class Settings:
    """The outer loop's settings.

    Attributes:
      num_masks: M, masks per outer step.
      outer_steps: updates of the probabilities.
      estimator: 'pge', 'exact_k', 'gumbel', 'path', 'hybrid', 'differences', an `Estimator`, or
        'auto', which leaves the choice among these to the objective.
      baseline: of the policy gradient, 'leave_one_out' or 'none'.
      temperature: of 'gumbel'.
      path_until: of 'hybrid', see `estimators.hybrid`.
      optimizer: 'adam', 'sgd', 'normalized_sgd' or any optax optimiser. Adam takes steps of about
        the same size for all candidates; where gradients are mostly noise, 'normalized_sgd', which
        keeps their proportions, does better.
      learning_rate: at the start.
      schedule: 'cosine' or 'constant'.
      clip_norm: the gradient's norm is clipped at this; 0 does not clip.
      size_schedule: 'constant', or 'cubic': K starts `start_factor` times larger and falls.
      start_factor: of 'cubic'.
      settle: in the second half of the steps s grows by up to this fraction of itself before each
        projection, so that large probabilities gain what small ones lose; 0 leaves that to the
        gradient. About 0.1 ends with nearly all of them at 0 or 1.
      final: how the coreset is drawn, 'top_k' (exactly K) or 'sample' (from p(m | s)).
      max_ratio: of samples: largest over smallest class of the coreset, at most, by label; 0 leaves
        it free. Where the smallest class has too few candidates for that, fewer than K are chosen.
      smooth: of inputs of pictures `[N, height, width, ...]`: what is learnt of an input is learnt
        of its neighbours too, by a Gaussian with this standard deviation, in pixels. It helps where
        inputs are noisy and many are chosen; else 0 is better.
    """

    num_masks: int = 8
    outer_steps: int = 200
    estimator: str | Estimator = "pge"
    baseline: str = "leave_one_out"
    temperature: float = 0.5
    path_until: float = 1.0
    optimizer: str | optax.GradientTransformation = "adam"
    learning_rate: float = 0.05
    schedule: str = "cosine"
    clip_norm: float = 3.0
    size_schedule: str = "constant"
    start_factor: float = 2.0
    settle: float = 0.0
    final: str = "top_k"
    max_ratio: float = 0.0
    smooth: float = 0.0

    def __post_init__(self):
        check_number("outer_steps", self.outer_steps, least=0, most=2**31 - 1, whole=True)
        self.transformation()
        # The leave-one-out baseline needs two masks; with one, use baseline='none'.
        least = self.gradient_estimator().min_masks
        check_number("num_masks", self.num_masks, least=least, whole=True)
        check_number("temperature", self.temperature, least=0, above=True)
        check_number("path_until", self.path_until, least=0, most=1)
        check_number("smooth", self.smooth, least=0)
        if self.max_ratio != 0:
            check_number("max_ratio", self.max_ratio, least=1)
        check_number("start_factor", self.start_factor, least=1)
        check_number("settle", self.settle, least=0)
        check_known("size_schedule", self.size_schedule, SIZE_SCHEDULES)
        check_known("final", self.final, FINALS)

    def gradient_estimator(self) -> Estimator:
        """The estimator that this describes."""
        if isinstance(self.estimator, Estimator):
            return self.estimator
        return estimators.create(
            self.estimator,
            baseline=self.baseline,
            temperature=self.temperature,
            path_until=self.path_until,
        )

    def transformation(self) -> optax.GradientTransformation:
        """The optax optimiser that this describes."""
        return optimizers.create(
            self.optimizer,
            self.learning_rate,
            self.outer_steps,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
        )

    def growth_at(self, progress: jax.Array | float) -> jax.Array:
        """By what fraction of itself s grows, at a fraction `progress` of the outer steps."""
        late = jnp.clip((progress - _SETTLE_FROM) / (1 - _SETTLE_FROM), 0, 1)
        return self.settle * late

    def size_at(self, progress: jax.Array | float, size: jax.Array | float) -> jax.Array:
        """K at a fraction `progress` of the outer steps."""
        if self.size_schedule == "constant":
            return jnp.asarray(size, jnp.float32)
        left = 1 - jnp.clip((progress - _FALL_FROM) / (_FALL_TO - _FALL_FROM), 0, 1)
        return size * (1 + (self.start_factor - 1) * left**3)

    def largest_size(self, n: int, size: float) -> float:
        """The largest expected number of chosen candidates in a run."""
        with jax.ensure_compile_time_eval():  # a number within `jit` too
            return min(float(self.size_at(0.0, size)), n)
