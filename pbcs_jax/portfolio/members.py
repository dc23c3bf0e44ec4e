"""The ways to choose that a plan can name.

A member of the kind `views` swaps samples while the mean loss of ridge regressions falls, one
regression per view of the data. What it swaps, and what for:

    cleaned     only samples whose label the others did not outvote
    validated   half of each class's outer loss, or more of a rare one's, is that of the
                validation data
    even        as many of each class, as far as there are so many
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.samples import quotas
from pbcs_jax.baselines.samples.scores import highest_of_each_class
from pbcs_jax.objectives import labels
from pbcs_jax.objectives import ridge as ridge_lib
from pbcs_jax.objectives.exchange import (
    Learner,
    Outer,
    best_addition,
    exchange_samples,
    nothing_chosen,
)
from pbcs_jax.portfolio.facts import Data, Facts
from pbcs_jax.portfolio.views import View

RIDGE_DRAWS = 8
PATIENCE = 6
PART = 0.7
"""Of the candidates, that a further start is chosen from."""
VALIDATION_SHARE = 0.5


class Member(NamedTuple):
    """One way to choose.

    Attributes:
      views: of ridge regressions; none for a plain draw.
      cleaned: whether outvoted samples are left out.
      validated: whether the validation data are half of the outer loss.
      even: whether each class has as many, as far as there are so many.
      start: 'herding', 'greedy', 'random', or for a plain draw 'stratified'.
      seed: of what is random in it; above 0 herding is among a random part of the candidates.
    """

    views: tuple[str, ...] = ()
    cleaned: bool = False
    validated: bool = False
    even: bool = False
    start: str = "herding"
    seed: int = 0

    @property
    def name(self) -> str:
        """As it stands in tables."""
        words = ["+".join(self.views) or self.start]
        words += [word for word in ("cleaned", "validated", "even") if getattr(self, word)]
        if self.views and self.seed:
            words.append(f"start {self.seed}")
        return ", ".join(words)


class _Gram(NamedTuple):
    """What `exchange.best_addition` takes: products `[n, n + v]`, targets `[c, n + v]`, weights."""

    rows: jax.Array
    targets: jax.Array
    weights: jax.Array


class Prepared(NamedTuple):
    """What all members share.

    Attributes:
      data: the pool.
      facts: of the whole data.
      views: by name.
      kept: `[n]` bool, not outvoted, with enough of each class.
      votes: of the candidates on each other.
      models: the networks that judge.
    """

    data: Data
    facts: Facts
    views: dict[str, View]
    kept: np.ndarray
    votes: labels.Votes
    models: tuple[Any, ...]

    def allowed(self, member: Member) -> np.ndarray:
        """`[n]` bool, whom a member may choose."""
        return self.kept if member.cleaned else np.ones(len(self.data.y), bool)


def clean(
    key: jax.Array, data: Data, views: Sequence[View], size: int
) -> tuple[labels.Votes, np.ndarray]:
    """The votes on all labels, and who may be chosen: of each class some, and K in all."""
    n, m = len(data.y), len(data.outer)
    trusted = 0 if data.validation is None else len(data.validation[1])
    rows = [(jnp.concatenate([view.rows, view.outer[m:]]), view.width) for view in views]
    y = data.y if data.validation is None else np.concatenate([data.y, data.validation[1]])
    votes = labels.vote(key, rows, np.asarray(y), trusted)
    kept = votes.kept[:n].copy()
    wanted = quotas.even(data.counts, min(size, n))
    for group, least in enumerate(wanted):
        own = np.flatnonzero(data.groups == group)
        best = own[np.argsort(-votes.margins[own], kind="stable")]
        if kept[own].sum() < least:
            kept[best[:least]] = True
    return votes, kept


def choose(member: Member, prepared: Prepared, key: jax.Array, swaps: int) -> np.ndarray:
    """`[K]` sorted indices into the pool."""
    data, facts = prepared.data, prepared.facts
    size = min(facts.size, len(data.y))
    allowed = prepared.allowed(member)
    rng = np.random.default_rng([member.seed, *np.asarray(jax.random.key_data(key)).tolist()])
    inside = np.flatnonzero(allowed)
    groups = data.groups[inside]
    wanted = quotas.even(np.bincount(groups, minlength=len(data.shares)), min(size, len(inside)))
    scores = rng.random(len(inside))
    if member.start == "herding":
        view = prepared.views["gauss"]
        some = allowed
        if member.seed:
            some = allowed & _part(rng, data.groups, wanted)
        ranks = _herding_ranks(view.rows, view.width, data.groups, some, int(wanted.max()))
        scores = -np.asarray(ranks)[inside]
    if member.start == "greedy":
        return np.sort(_added(prepared, allowed, random_coresets(rng, data, allowed, size, 1)))
    start = inside[highest_of_each_class(np.asarray(scores), groups, wanted)]
    if not member.views:
        return np.sort(start)
    return swapped(member, prepared, rng, start, swaps)


def _part(rng: np.random.Generator, groups: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """`[n]` bool, a random share of each class, with as many as are wanted if there are."""
    order = rng.permutation(len(groups))
    part = np.zeros(len(groups), bool)
    for group, least in enumerate(wanted):
        own = order[groups[order] == group]
        part[own[: max(least, round(PART * len(own)))]] = True
    return part


def swapped(
    member: Member, prepared: Prepared, rng: np.random.Generator, start: np.ndarray, swaps: int
) -> np.ndarray:
    """`[K]` sorted indices into the pool, where no swap helps the member's regressions."""
    data = prepared.data
    allowed = prepared.allowed(member)
    share = VALIDATION_SHARE if member.validated else 0.0
    groups = data.groups if member.even else np.zeros(len(data.y), np.int32)
    problem = outer_of(data, allowed, share, groups)
    draws = random_coresets(rng, data, allowed, len(start), RIDGE_DRAWS)
    learners = learners_of(prepared.views, member.views, problem, draws)
    return exchange_samples(learners, problem, start, swaps, PATIENCE)[0]


def outer_of(data: Data, allowed: np.ndarray, share: float, groups: np.ndarray) -> Outer:
    """What regressions are trained on and judged by.

    Args:
      data: the pool.
      allowed: `[n]`, who may be chosen and judges.
      share: of the outer loss that is the validation data's, see `Data.outer_weights`.
      groups: `[n]`, a swap stays within one.
    """
    y = data.y if data.validation is None else np.concatenate([data.y, data.validation[1]])
    targets = ridge_lib.encode(jnp.asarray(y))
    n = len(data.y)
    weights = data.outer_weights(allowed, share)
    outer_targets = jnp.concatenate([targets[data.outer], targets[n:]])
    return Outer(
        *(targets[:n], outer_targets, jnp.asarray(weights)),
        *(jnp.asarray(allowed), jnp.asarray(groups)),
    )


def learners_of(
    views: Mapping[str, View], names: Collection[str], problem: Outer, draws: np.ndarray
) -> tuple[Learner, ...]:
    """One per view, with the ridge that suits `draws [r, K]`; those not named have no share."""
    learners = []
    for name, view in views.items():
        if name not in names:
            learners.append(_learner(view, 1.0, 0.0))
            continue
        ridge, loss = _ridge(view, problem, draws)
        # Each learner's loss counts by how much of it there is at the start.
        learners.append(_learner(view, ridge, 1 / (len(names) * loss)))
    return tuple(learners)


def _learner(view: View, ridge: Any, share: Any) -> Learner:
    """With numbers of one type, so that all members run one compiled program."""
    numbers = jnp.asarray(ridge, jnp.float32), jnp.asarray(share, jnp.float32)
    return Learner(view.rows, view.outer, *numbers, view.width)


@jax.jit
def _herding_ranks(rows, width, groups, allowed, steps):
    """`[n]`, when kernel herding chooses each in its class: 0, 1, ..., or n for later.

    The k-th is argmax mean_j k(i, j) - sum k(i, those before) / (k + 1), over its class: the mean
    of the chosen ones comes to be that of the class, in the space of the Gaussian kernel.
    """
    n = len(rows)
    alike = (groups[:, None] == groups) & allowed
    kernel = jnp.where(alike, ridge_lib.products(rows, rows, width), 0)
    mean = jnp.sum(kernel, axis=1) / jnp.maximum(jnp.sum(alike, axis=1), 1)

    def body(k, carry):
        ranks, total = carry
        gain = jnp.where(allowed & (ranks == n), mean - total / (k + 1), -jnp.inf)
        best = jax.ops.segment_max(gain, groups, n)[groups]
        first = jax.ops.segment_min(jnp.where(gain == best, jnp.arange(n), n), groups, n)
        is_chosen = (jnp.arange(n) == first[groups]) & jnp.isfinite(gain)
        return jnp.where(is_chosen, k, ranks), total + kernel @ is_chosen.astype(kernel.dtype)

    return jax.lax.fori_loop(0, steps, body, (jnp.full(n, n, jnp.int32), jnp.zeros(n)))[0]


def _added(prepared: Prepared, allowed: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """`[K]`, one after the other the one that helps the regression of the inputs most."""
    data, view = prepared.data, prepared.views["gauss"]
    n, m = len(data.y), len(data.outer)
    problem = outer_of(data, allowed, 0.0, np.zeros(n, np.int32))
    ridge, _ = _ridge(view, problem, jnp.asarray(draws))
    # All candidates are outer data here; those that are none have no weight.
    targets = jnp.concatenate([problem.targets, problem.outer_targets[m:]])
    weights = jnp.zeros(n).at[data.outer].set(problem.weights[:m])
    rows = jnp.concatenate([view.rows, view.outer[m:]])
    weights = jnp.concatenate([weights, problem.weights[m:]])
    return np.asarray(
        _additions(view, rows, targets, weights, ridge, problem.allowed, draws.shape[1])
    )


@partial(jax.jit, static_argnames="size")
def _additions(view: View, rows, targets, weights, ridge, allowed, size: int):
    products = ridge_lib.products(view.rows, rows, view.width)
    problem = _Gram(products, targets.T, weights)

    def body(carry, _):
        state, left = carry
        best, state = best_addition(problem, ridge, state, left)
        return (state, left.at[best].set(False)), best

    return jax.lax.scan(body, (nothing_chosen(problem), allowed), None, size)[1]


def random_coresets(
    rng: np.random.Generator, data: Data, allowed: np.ndarray, size: int, count: int
) -> np.ndarray:
    """`[count, K]` random coresets with classes as even as the one that is looked for."""
    inside = np.flatnonzero(allowed)
    groups = data.groups[inside]
    wanted = quotas.even(np.bincount(groups, minlength=len(data.shares)), size)
    scores = [rng.random(len(inside)) for _ in range(count)]
    return np.stack([inside[highest_of_each_class(s, groups, wanted)] for s in scores])


@jax.jit
def _ridge(view: View, problem: Outer, draws) -> tuple[jax.Array, jax.Array]:
    """The ridge with which random coresets have the least outer loss, and that loss."""
    rows, outer, width = view
    grid = jnp.asarray(ridge_lib.RIDGES, rows.dtype)
    root = jnp.sqrt(problem.weights)[:, None]

    def errors(chosen):
        some, own = rows[chosen], problem.targets[chosen]
        gram = ridge_lib.products(some, some, width)
        cross = ridge_lib.products(outer, some, width)
        held_out = lambda dual: root * (cross @ dual - problem.outer_targets)  # noqa: E731
        floor = 4 * jnp.finfo(jnp.float32).eps
        return ridge_lib.errors_by_ridge(gram, own, grid, floor, held_out)

    found = jnp.mean(jax.lax.map(errors, draws), axis=0)
    best = jnp.argmin(found)
    return grid[best], found[best] * problem.outer_targets.size
