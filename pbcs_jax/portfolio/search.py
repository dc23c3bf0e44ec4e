"""A plan, carried out: members choose, short trainings compare, the best is started again."""

import dataclasses
import logging
import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from pbcs_jax import progress
from pbcs_jax.objectives.ridge import LOGIT_SCALE
from pbcs_jax.portfolio import bilevel
from pbcs_jax.portfolio import facts as facts_lib
from pbcs_jax.portfolio import judge as judge_lib
from pbcs_jax.portfolio import members as members_lib
from pbcs_jax.portfolio import plan as plan_lib
from pbcs_jax.portfolio import sizes as sizes_lib
from pbcs_jax.portfolio import views as views_lib
from pbcs_jax.portfolio.comparison import Entry, Judged, Seen, trials
from pbcs_jax.portfolio.facts import Data, Facts
from pbcs_jax.portfolio.members import Member, Prepared
from pbcs_jax.portfolio.plan import Plan
from pbcs_jax.portfolio.sizes import Sizes

_COMPILING = (
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)
_LOG = logging.getLogger(__name__)


class Choice(NamedTuple):
    """How 'auto' came to its result.

    Attributes:
      plan: what was done; given as the option `plan`, it repeats the choice bit by bit.
      winner: the name of what was chosen by.
      lead: its score less that of the best plain draw that was compared, which is stratified, or
        random for a regression; None if there was none.
      judged: all that was compared, best first.
      seconds: of the search, without compiling.
      compile_seconds: of compiling.
      sizes: with the size 'auto', how it was found; else None.
    """

    plan: Plan
    winner: str
    lead: float | None
    judged: tuple[Judged, ...]
    seconds: float
    compile_seconds: float
    sizes: Sizes | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        judged = [one._asdict() for one in self.judged]
        sizes = None if self.sizes is None else self.sizes.to_dict()
        return self._asdict() | {"plan": self.plan.to_dict(), "judged": judged, "sizes": sizes}

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Choice":
        """What `to_dict` made of one."""
        judged = tuple(Judged(**one) for one in given["judged"])
        sizes = None if given.get("sizes") is None else Sizes.of(given["sizes"])
        return cls(**(given | {"plan": Plan.of(given["plan"]), "judged": judged, "sizes": sizes}))


class Found(NamedTuple):
    """What a search gives.

    Attributes:
      indices: `[K]` sorted.
      probabilities: `[n]`, the share of the coresets of the last comparison that hold each.
      choice: how it came about.
      prepared: what the members shared, with the votes on the labels.
      everything: all candidates.
      key: for their views.
    """

    indices: np.ndarray
    probabilities: np.ndarray
    choice: Choice
    prepared: Prepared
    everything: Data
    key: jax.Array

    def outputs(self) -> np.ndarray:
        """`[n, C]` probabilities of classes, or `[n, ...]` numbers: what others make of each.

        Those that were not in the pool are voted on now.
        """
        n, votes = len(self.everything.y), self.prepared.votes
        if n > len(self.prepared.data.y):
            views = views_lib.plain_views(self.key, self.everything, self.prepared.facts)
            votes, _ = members_lib.clean(self.key, self.everything, list(views.values()), 1)
        found = votes.outputs[:n]
        if self.everything.num_classes:
            return np.asarray(jax.nn.softmax(found * LOGIT_SCALE))
        return found.reshape(np.shape(self.everything.y))


class _Clock:
    """Seconds of a search without those of compiling."""

    def __init__(self, budget: float):
        self.compiling = 0.0
        self._budget = budget
        self._began = time.perf_counter()

    def heard(self, event: str, seconds: float, **_: Any) -> None:
        """A listener of `jax.monitoring`."""
        if event in _COMPILING:
            self.compiling += seconds

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._began - self.compiling

    def has(self, more: float = 0.0) -> bool:
        """Whether there is time left, for so many seconds more."""
        return self.seconds + more <= self._budget


def search(
    key: jax.Array, data: Any, model: Any, size: int | None, options: plan_lib.Auto
) -> Found:
    """Chooses `size` candidates.

    Args:
      key: PRNG key, consumed.
      data: from `border.check_data`.
      model: the user's own, see `as_model`; or None.
      size: K; None looks for the smallest that is good enough.
      options: the time budget, or the plan.
    """
    # Several processes have several clocks, and must do the same.
    timeless = options.plan is not None or jax.process_count() > 1
    clock = _Clock(math.inf if timeless else options.time_budget)
    jax.monitoring.register_event_duration_secs_listener(clock.heard)
    try:
        return _search(key, data, model, size, options, clock)
    finally:
        jax.monitoring.unregister_event_duration_listener(clock.heard)


def _search(key, data, model, size: int | None, options: plan_lib.Auto, clock: _Clock) -> Found:
    classes = data.encoding.classes
    num_classes = 0 if classes is None else len(classes)
    validation = 0 if data.validation is None else len(data.validation[1])
    n = len(data.y)
    facts = Facts(n, size or n, num_classes, data.x.shape[1:], validation, model is not None)
    everything = Data(data.x, data.y, data.validation, num_classes, np.zeros(1, int), np.arange(n))
    keys = jax.random.split(key, 6)
    sizes, nested, budget = None, None, options.time_budget
    plan = None if options.plan is None else Plan.of(options.plan)
    effort = 0, 0
    if size is None:
        judges = judge_lib.networks(facts, model)[:1]  # the network, without the linear one
        cost = judge_lib.products(judges[0][0], data.x[:1])
        effort = plan_lib.for_sizes(facts, budget, cost)
        if plan is not None and plan.trainings:
            effort = plan.ordered, plan.trainings
        own_key = jax.random.fold_in(key, 6)
        sizes, nested = sizes_lib.find(
            own_key, everything, facts, judges, options.tolerance, effort
        )
        facts, budget = facts._replace(size=sizes.size), budget * (1 - plan_lib.SIZES_SHARE)
    judges = judge_lib.networks(facts, model)
    network = judge_lib.cheap_network(facts, model, data.x[:1])
    size_of_pool = plan_lib.pool_of(facts, budget)
    if plan is not None:
        size_of_pool = plan.pool, plan.outer
    rng = np.random.default_rng(np.asarray(jax.random.key_data(keys[0])).tolist())
    pool = facts_lib.gather(
        rng,
        data.x,
        data.y,
        data.validation,
        num_classes,
        max(size_of_pool[0], facts.size),
        size_of_pool[1],
        np.zeros(0, int) if nested is None else nested,
    )
    began = clock.seconds
    progress.stage("Looking at the data")
    views = views_lib.plain_views(keys[1], pool, facts)
    votes, kept = members_lib.clean(keys[2], pool, list(views.values()), facts.size)
    facts = facts.told(votes.margins, votes.kept)
    if plan is None:
        costs = sum(judge_lib.products(one, data.x[:1]) for one, _ in judges)
        own_cost = judge_lib.products(network, data.x[:1])
        plan = plan_lib.make(facts, budget, costs, own_cost)
        if clock.seconds - began > budget / 2:  # looking at the data took more than half of it
            plan = plan_lib.without_networks(plan)
        plan = dataclasses.replace(plan, ordered=effort[0], trainings=effort[1])
    if options.on_plan is not None:
        options.on_plan(plan)
    if plan.networks:
        progress.stage("Training networks")
        views["tangents"] = views_lib.tangent_view(
            keys[3], pool, network, facts.size, plan.networks, kept
        )
    prepared = Prepared(pool, facts, views, kept, votes, tuple(model for model, _ in judges))
    believed = kept if facts.noise[0] > plan_lib.DOUBTFUL else None
    judge = judge_lib.Judge(keys[4], pool, judges, min(facts.size, len(pool.y)), believed)
    seen = Seen()
    if nested is not None:
        own = np.searchsorted(pool.rows, np.sort(nested))
        seen.add(Entry(Member(start="nested"), "nested", own))
    plan = _compare(keys[5], prepared, judge, plan, clock, seen)
    found = _found(seen, plan, clock, prepared, everything, keys[1])
    return found._replace(choice=found.choice._replace(sizes=sizes))


def _compare(
    key: jax.Array,
    prepared: Prepared,
    judge: judge_lib.Judge,
    plan: Plan,
    clock: _Clock,
    seen: Seen,
) -> Plan:
    """The trials of a plan until it ends, or the time; returns the plan that was kept to."""
    wanted = plan.trials or (
        2 * (len(plan.members) + plan.restarts)
        + plan.searches * (plan_lib.SEARCH_STEPS // bilevel.AT_ONCE)
    )
    with progress.steps("Comparing", wanted) as at:
        for done, name in enumerate(trials(key, prepared, judge, plan, seen), 1):
            at(min(done, wanted), name=name)
            if done == plan.trials:
                break
            if not clock.has():
                _LOG.info("The time budget ends the search after %d trials", done)
                return dataclasses.replace(plan, trials=done)
    return plan


def _found(
    seen: Seen, plan: Plan, clock: _Clock, prepared: Prepared, everything: Data, key: jax.Array
) -> Found:
    """The best of what was seen."""
    last = seen.last()
    best = seen.ranked(last)[0]
    pool = prepared.data.rows
    probabilities = np.zeros(len(everything.y), np.float32)
    for i in last:
        probabilities[pool[seen.entries[i].indices]] += 1 / len(last)
    judged = [seen.judged(i) for i in seen.ranked(seen.scores)]
    plain = [one.score for one in judged if one.name.split(",")[0] in ("stratified", "random")]
    lead = seen.mean(best) - max(plain) if plain else None
    choice = Choice(
        *(plan, seen.entries[best].name, lead, tuple(judged)),
        *(round(clock.seconds, 2), round(clock.compiling, 2)),
    )
    indices = np.sort(pool[seen.entries[best].indices])
    return Found(indices, probabilities, choice, prepared, everything, key)
