"""The paper's own search, from the best coreset so far: masks train the networks that judge.

Ridge regressions see what networks see, but their loss is not that of a network that is trained on
so few samples. So the probabilities start around the best coreset, and the policy gradient, helped
by the path gradient for the first half, moves them to where the judge's networks have the least
Brier score on the outer data. The judge decides whether what comes out is better.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.choices import Samples
from pbcs_jax.inner.train import Inner
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.outer import draw, loop, masks
from pbcs_jax.outer.base import Evaluation, Objective
from pbcs_jax.outer.settings import Settings
from pbcs_jax.portfolio.facts import Data
from pbcs_jax.portfolio.plan import SEARCH_BATCH, SEARCH_MASKS, SEARCH_OUTER, SEARCH_STEPS

SOFT = 0.5
"""How far the probabilities start from the best coreset, towards K/n."""
AT_ONCE = 10
"""Outer steps that are one trial."""
SETTINGS = Settings(
    num_masks=SEARCH_MASKS,
    outer_steps=SEARCH_STEPS,
    estimator="hybrid",
    path_until=0.5,
    learning_rate=0.1,
)


class Problem(NamedTuple):
    """What is searched in; one of them serves several searches, and is compiled once.

    Attributes:
      inside: `[a]` sorted indices into the pool, who may be chosen.
      evaluate: the outer loss of masks `[M, a]`.
    """

    inside: np.ndarray
    evaluate: Objective


def problem(
    key: jax.Array,
    data: Data,
    models: Sequence[Any],
    allowed: np.ndarray,
    size: int,
    weights: np.ndarray,
) -> Problem:
    """Outer examples are drawn once, as often as their weights say.

    Args:
      key: PRNG key, consumed.
      data: the pool.
      models: networks, whose mean loss is minimised.
      allowed: `[n]` bool, who may be chosen.
      size: K.
      weights: `[m + v]`, of the outer candidates and the validation data.
    """
    inside = np.flatnonzero(allowed)
    x, y = data.x[data.outer], data.y[data.outer]
    if data.validation is not None:
        x = np.concatenate([x, np.asarray(data.validation[0], x.dtype)])
        y = np.concatenate([y, np.asarray(data.validation[1], y.dtype)])
    some = jax.random.choice(key, len(y), (SEARCH_OUTER,), p=jnp.asarray(weights))
    inner = Inner(batch_size=SEARCH_BATCH if size > SEARCH_BATCH else 0)
    objectives = [
        network_objective(
            as_model(model),
            jnp.asarray(data.x[inside]),
            jnp.asarray(data.y[inside]),
            Samples(masks.capacities(len(inside), size)[-1:]),
            Network(inner, outer_loss="brier" if data.num_classes else "auto"),
            validation=(jnp.asarray(x)[some], jnp.asarray(y)[some]),
            path=True,
            num_masks=SEARCH_MASKS,
        )
        for model in models
    ]
    return Problem(inside, jax.tree_util.Partial(_mean, objectives))


def searched(key: jax.Array, given: Problem, best: np.ndarray) -> Iterator[np.ndarray | None]:
    """Searches from `best`, `[K]` indices of those who may be chosen.

    Yields:
      None after every `AT_ONCE` outer steps; at last `[K]` sorted indices into the pool.
    """
    run_key, draw_key = jax.random.split(key)
    n, size = len(given.inside), len(best)
    start = np.full(n, SOFT * size / n, np.float32)
    start[np.searchsorted(given.inside, best)] += 1 - SOFT
    state = loop.init(run_key, n, size, SETTINGS, start)
    for step in range(SEARCH_STEPS):
        state, _ = loop.step(state, given.evaluate, SETTINGS)
        if step % AT_ONCE == AT_ONCE - 1:
            jax.block_until_ready(state)
            yield None
    yield given.inside[draw.draw_coreset(draw_key, state.probabilities, size)]


def _mean(objectives: Sequence[Objective], key: jax.Array, drawn: jax.Array) -> Evaluation:
    found = [evaluate(key, drawn) for evaluate in objectives]
    mean = lambda values: sum(values) / len(found)  # noqa: E731
    return Evaluation(
        losses=mean([one.losses for one in found]),
        ok=jnp.all(jnp.stack([one.ok for one in found]), axis=0),
        path_gradients=mean([one.path_gradients for one in found]),
        masks=found[0].masks,
    )
