"""The search for K: nested coresets of all sizes, and the smallest that networks do well enough on.

A part of the candidates is held out. From the others those go that ridge regressions miss least
(`objectives.elimination`), until few are left: that orders them, and each beginning of the order is
a coreset. Short trainings compare beginnings with all of them: first sizes a factor of two apart,
then sizes between the largest that is too small and the next. What is found is then exchanged for
better samples, which are ordered and compared in the same way.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from pbcs_jax import progress
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives.elimination import SHRINK, eliminate
from pbcs_jax.objectives.exchange import Learner, Outer, exchange_samples
from pbcs_jax.portfolio import judge as judge_lib
from pbcs_jax.portfolio import members as members_lib
from pbcs_jax.portfolio import views as views_lib
from pbcs_jax.portfolio.facts import Data, Facts, gather
from pbcs_jax.portfolio.plan import BETWEEN, DOUBTFUL, SIZE_BATCH, SIZE_STEPS, swap_seconds
from pbcs_jax.portfolio.views import View

LARGEST_ROWS = 2**14
"""Candidates that training on everything takes at most."""
HELD_OUT = 0.25
LARGEST_HELD_OUT = 1000
TOO_SMALL = 2
"""So many sizes in a row, each half of the last, that are not good enough end the search."""
FEWEST = 10
"""So many are in no order."""
_RIDGE_SIZE, _RIDGE_DRAWS = 400, 4
_SWAPPING = 8.0
"""Seconds of exchanges, by the estimate of the plan."""


class Sized(NamedTuple):
    """One size that was tried.

    Attributes:
      size: K.
      score: as in `Judged`, on what was held out.
      smooth: the same, brought in line with the other sizes: no larger coreset is worse.
    """

    size: int
    score: float
    smooth: float


class Sizes(NamedTuple):
    """How a size was found.

    Attributes:
      size: the smallest that is good enough.
      tolerance: by how much its score may be below that of everything.
      everything: the score of networks that were trained on all candidates but those held out, with
        as many steps as the others.
      tried: sizes, the smallest first.
    """

    size: int
    tolerance: float
    everything: float
    tried: tuple[Sized, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict() | {"tried": [one._asdict() for one in self.tried]}

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Sizes":
        """What `to_dict` made of one."""
        return cls(**(given | {"tried": tuple(Sized(**one) for one in given["tried"])}))


def find(
    key: jax.Array,
    everything: Data,
    facts: Facts,
    judges: Sequence[Any],
    tolerance: float,
    effort: tuple[int, int],
) -> tuple[Sizes, np.ndarray]:
    """The smallest size that is good enough, and the nested coreset of that size.

    Args:
      key: PRNG key, consumed.
      everything: all candidates.
      facts: of them; their `size` is not used.
      judges: models, see `judge.networks`.
      tolerance: see `Sizes`.
      effort: `ordered` and `trainings` of the plan.
    """
    ordered, trainings = effort
    keys = jax.random.split(key, 4)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(keys[0])).tolist())
    held, rest = _split(rng, everything)
    progress.stage("Ordering the candidates")
    part = _part(everything, rest)
    order = _order(rng, keys[1:3], part, facts, ordered)
    whole_rows = rng.permutation(rest)[:LARGEST_ROWS]
    most = min(len(rest), LARGEST_ROWS)
    used = rest
    if len(rest) > most:
        used = np.union1d(rest[order.rows[:most]], whole_rows)
    data = _part(everything, np.concatenate([used, held]))
    data = data._replace(outer=np.arange(len(used), len(data.y)))
    nets = [(model, _long(inner)) for model, inner in judges]
    judge = judge_lib.Judge(keys[3], data, nets, most)
    progress.stage("Looking for the size")

    def score(rows: np.ndarray, size: int) -> float:
        chosen = np.searchsorted(used, rng.permutation(rows[:size]))
        return float(judge(chosen, range(trainings)).mean())

    size, whole, least = most, score(whole_rows, most), max(2, facts.num_classes)
    wanted, known = whole - tolerance, {most: whole}
    rows = rest[order.rows]
    for again in (False, True):
        if again:  # the smallest that is enough, exchanged for better ones, needs fewer of them
            order = order.exchanged(rng, size, _swaps(facts, order, size))
            rows = rest[order.rows]
            known = {k: found for k, found in known.items() if k > size}
            known[size] = score(rows, size)
        known |= _search(partial(score, rows), size, least, wanted)
        sizes = sorted(known)
        smooth = _rising(np.array([known[k] for k in sizes]))
        size = next(k for k, value in zip(sizes, smooth, strict=True) if value >= wanted)
        if size >= len(order.chosen):
            break
    tried = tuple(Sized(k, known[k], float(v)) for k, v in zip(sizes, smooth, strict=True))
    return Sizes(size, tolerance, whole, tried), rows[:size]


def _search(
    score: Callable[[int], float], most: int, least: int, wanted: float
) -> dict[int, float]:
    """The scores of the sizes that matter, by size."""
    known: dict[int, float] = {}
    failed = 0
    with progress.steps("Sizes", BETWEEN + most.bit_length()) as at:

        def tried(size: int) -> bool:
            if size not in known and least <= size < most:
                known[size] = score(size)
                at(len(known))
            return known.get(size, wanted) >= wanted

        size = most
        while failed < TOO_SMALL and (size := size // 2) >= least:
            failed += not tried(size)
        low = max((k for k, found in known.items() if found < wanted), default=least)
        for k in np.geomspace(low, min(2 * low + 1, most), BETWEEN + 2)[1:-1]:
            tried(round(k))
    return known


def _rising(values: np.ndarray) -> np.ndarray:
    """The nearest that never fall (isotonic regression, by pooling neighbours).

    >>> _rising(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([float(value)])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return np.concatenate([np.full(len(block), np.mean(block)) for block in blocks])


def _long(inner: Inner) -> Inner:
    """Enough steps for many samples, the same for few."""
    return dataclasses.replace(inner, steps=SIZE_STEPS, batch_size=SIZE_BATCH)


def _part(data: Data, rows: np.ndarray) -> Data:
    """Some of the candidates."""
    return data._replace(x=data.x[rows], y=data.y[rows], outer=np.zeros(1, int), rows=rows)


def _split(rng: np.random.Generator, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Sorted rows that are held out, of each class the same share, and all others."""
    n = len(data.y)
    share = min(HELD_OUT, LARGEST_HELD_OUT / n)
    order = rng.permutation(n)
    held = np.zeros(n, bool)
    for group in np.unique(data.groups):
        own = order[data.groups[order] == group]
        held[own[: round(share * len(own))]] = True
    return np.flatnonzero(held), np.flatnonzero(~held)


class _Order(NamedTuple):
    """Candidates in the order in which they are needed.

    Attributes:
      chosen: places in the pool, the most needed first.
      others: candidates that are in no order, which come last.
      pool: what was put in order.
      views: of the pool.
      problem: what its regressions are trained on and judged by.
    """

    chosen: np.ndarray
    others: np.ndarray
    pool: Data
    views: dict[str, View]
    problem: Outer

    @property
    def rows(self) -> np.ndarray:
        """`[n]`, all candidates."""
        return np.concatenate([self.pool.rows[self.chosen], self.others])

    def learners(self, rng: np.random.Generator, size: int) -> tuple[Learner, ...]:
        """The regressions that suit coresets of a size."""
        allowed = np.asarray(self.problem.allowed)
        draws = members_lib.random_coresets(rng, self.pool, allowed, size, _RIDGE_DRAWS)
        return members_lib.learners_of(self.views, self.views, self.problem, draws)

    def eliminated(self, rng: np.random.Generator, size: int) -> "_Order":
        """With its first `size` put in order."""
        chosen = self.chosen
        while size > FEWEST:
            learners = self.learners(rng, min(size // 2, _RIDGE_SIZE))
            first = eliminate(learners, self.problem, chosen[:size], FEWEST)
            chosen = np.concatenate([first, chosen[size:]])
            size = max(FEWEST, size // SHRINK)
        return self._replace(chosen=chosen)

    def exchanged(self, rng: np.random.Generator, size: int, swaps: int) -> "_Order":
        """With its first `size` exchanged for better ones, and these put in order."""
        learners = self.learners(rng, min(size, _RIDGE_SIZE))
        start = np.sort(self.chosen[:size])
        patience = members_lib.PATIENCE
        better = exchange_samples(learners, self.problem, start, swaps, patience)[0]
        rest = self.chosen[~np.isin(self.chosen, better)]
        return self._replace(chosen=np.concatenate([better, rest])).eliminated(rng, size)


def _order(
    rng: np.random.Generator, keys: jax.Array, data: Data, facts: Facts, most: int
) -> _Order:
    """Of the candidates that are not outvoted; the others come last."""
    pool = gather(rng, data.x, data.y, data.validation, data.num_classes, most, 1000)
    views = views_lib.plain_views(keys[0], pool, facts)
    votes, kept = members_lib.clean(keys[1], pool, list(views.values()), FEWEST)
    if facts.told(votes.margins, votes.kept).noise[0] <= DOUBTFUL:
        kept = np.ones(len(pool.y), bool)
    share = members_lib.VALIDATION_SHARE
    problem = members_lib.outer_of(pool, kept, share, np.zeros(len(pool.y), np.int32))
    others = rng.permutation(np.setdiff1d(np.arange(len(data.y)), pool.rows[kept]))
    order = _Order(np.flatnonzero(kept), others, pool, views, problem)
    return order.eliminated(rng, len(order.chosen))


def _swaps(facts: Facts, order: _Order, size: int) -> int:
    """As many as a few seconds allow."""
    n, m = len(order.pool.y), order.problem.outer_targets.shape[0]
    widths = [view.rows.shape[1] for view in order.views.values()]
    one = sum(swap_seconds(facts, size, n, m, width) for width in widths)
    return min(2 * size, int(_SWAPPING / one))
