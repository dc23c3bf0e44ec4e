"""The contracts of the outer loop: what an objective returns, and what an estimator is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding


class Evaluation(NamedTuple):
    """What an objective returns for M masks.

    Attributes:
      losses: `[M]`, the outer loss L(m) of each mask.
      ok: `[M]` bool; a mask whose model diverged or gave NaN is not ok and takes no part.
      path_gradients: `[M, n]`, dL/dm along the path of training, or None where there is none.
      masks: `[M, n]`, the masks that were really used, where they can differ from those given
        (candidates that overflowed a fixed capacity), else None.
      metrics: name to `[M]`, further figures to be logged, or None.
      differences: `[M, n]`, for every candidate the loss of the mask with it less that of the mask
        without it, all others as they are; or None.
    """

    losses: jax.Array
    ok: jax.Array
    path_gradients: jax.Array | None = None
    masks: jax.Array | None = None
    metrics: dict[str, jax.Array] | None = None
    differences: jax.Array | None = None


Objective = Callable[[jax.Array, jax.Array], Evaluation]
"""`(key, masks [M, n]) -> Evaluation`, the one function that the outer loop sees."""


class OnHost(NamedTuple):
    """An objective that is called with arrays, and not traced: it may read files.

    Attributes:
      evaluate: the objective.
      sharding: where the state and the masks are.
    """

    evaluate: Objective
    sharding: NamedSharding


class Built(NamedTuple):
    """An objective of given data.

    Attributes:
      evaluate: the objective, traced or `OnHost`.
      improve: `(key, indices) -> indices`, the last exchanges of a choice; None if there are none.
      predict: `(key, indices) -> outputs [n, ...]` for all candidates, of models trained on the
        chosen samples, no sample by a model that has seen it: probabilities of classes, or numbers
        of a regression. None where inputs are chosen.
    """

    evaluate: Objective | OnHost
    improve: Callable[[jax.Array, np.ndarray], np.ndarray] | None = None
    predict: Callable[[jax.Array, np.ndarray], np.ndarray] | None = None


class Estimator(NamedTuple):
    """A gradient estimator: pure functions, with a state of its own from step to step.

    Attributes:
      init: `n -> state`, any pytree of arrays; `()` for an estimator without memory.
      sample: `(key, probabilities [n], num_masks) -> masks [M, n]`.
      gradient: `(evaluation, masks [M, n], probabilities [n], progress, state) -> ([n], state)`;
        `progress` runs from 0 to 1 over the outer steps.
      needs_path: whether `gradient` reads the evaluation's `path_gradients`.
      min_masks: the fewest masks that it can work with.
      needs_differences: whether `gradient` reads the evaluation's `differences`.
    """

    init: Callable[[int], Any]
    sample: Callable[[jax.Array, jax.Array, int], jax.Array]
    gradient: Callable[[Evaluation, jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]]
    needs_path: bool
    min_masks: int
    needs_differences: bool = False
