"""A time budget becomes a plan before anything is tried; the same plan gives the same choice.

What a plan costs is estimated from counts of products and bytes, at rates that were measured on two
cores of a server. So the same call makes the same plan wherever it runs. On a slower machine, or a
busy one, the search stops early, and the plan that it returns names what was done.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pbcs_jax.errors import UserError, check_number
from pbcs_jax.portfolio.facts import Facts
from pbcs_jax.portfolio.judge import LARGEST_BATCH, STEPS
from pbcs_jax.portfolio.members import Member

SHARE = 0.85
"""Of the budget that the estimate fills with what cannot be cut short."""
OVER = 1.6
"""Of the budget that the estimate fills with all else: it is pessimistic, and the clock ends it."""
POOLS = (4000, 2000, 1000, 500)
"""Candidates that are chosen from at most."""
FEWEST = 4
"""Members that a smaller pool makes room for."""
PRODUCTS = 3e11
"""Operations per second of large matrices, two cores."""
SMALL_PRODUCTS = 1.2e11
"""The same in the training of small networks."""
FACTORS = 2e10
"""The same of a Cholesky factor or an inverse, which is left to one core."""
BYTES = 6e9
"""Per second, read or written."""
SIZES_SHARE = 2 / 3
"""Of the budget, with the size 'auto', that the search for the size may take."""
LARGEST_ORDER = 3000
"""Candidates that are put in order at most; the others follow at random."""
TRAININGS = (4, 2, 1)
SIZE_STEPS, SIZE_BATCH = 400, 128
SEARCH_STEPS, SEARCH_MASKS, SEARCH_BATCH, SEARCH_OUTER = 100, 8, 64, 1000
"""Of a search by the judge's networks: outer steps, masks, rows per inner step, outer examples."""
_INNER_STEPS = 100
BETWEEN = 4
"""Sizes that are tried between two that are a factor of two apart."""
DOUBTFUL = 0.1
"""Share of wrong labels above which they are looked for first."""


# From what every budget has to what only a large one has.
_STEPS = (
    *(("members", 2), ("networks", 2), ("members", 3), ("networks", 4)),
    *(("members", count) for count in range(4, 20)),
    *(("seeds", 4), ("searches", 1), ("restarts", 4), ("restarts", 8), ("networks", 8)),
    *(("searches", 2), ("restarts", 16), ("seeds", 8), ("restarts", 24), ("searches", 3)),
    *(("seeds", 16), ("searches", 4), ("restarts", 48)),
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is tried, and how long.

    Attributes:
      pool: candidates that are chosen from at most, of each class as many.
      outer: of these, how many at most are what a coreset should be good for.
      networks: trained for the view `tangents`; 0 leaves it out.
      swaps: of one member at most.
      members: the ways to choose that are compared.
      restarts: further starts of the best of them.
      seeds: trainings of each judge that the last ones are compared by.
      searches: how often the judge's networks search from the best so far.
      trials: after how many the time ended the search; 0 if it did not.
      ordered: candidates that are put in order, with the size 'auto'; else 0.
      trainings: of each judge for each size that is tried; else 0.
    """

    pool: int
    outer: int
    networks: int
    swaps: int
    members: tuple[Member, ...]
    restarts: int
    seeds: int
    searches: int = 0
    trials: int = 0
    ordered: int = 0
    trainings: int = 0

    def __post_init__(self):
        for name, least in (("pool", 1), ("outer", 1), ("swaps", 0), ("restarts", 0), ("seeds", 1)):
            check_number(f"plan.{name}", getattr(self, name), least=least, whole=True)
        for name in ("networks", "searches", "trials", "ordered", "trainings"):
            check_number(f"plan.{name}", getattr(self, name), least=0, whole=True)
        if not self.members:
            raise UserError("plan.members is empty: name at least one")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        members = [member._asdict() | {"views": list(member.views)} for member in self.members]
        return dataclasses.asdict(self) | {"members": members}

    @classmethod
    def of(cls, given: Any) -> "Plan":
        """A plan, or what `to_dict` made of one."""
        if isinstance(given, cls):
            return given
        try:
            fields = dict(given)
            named = [dict(member) for member in fields.pop("members")]
            members = (Member(**(member | {"views": tuple(member["views"])})) for member in named)
            return cls(**fields, members=tuple(members))
        except (TypeError, KeyError) as error:
            raise UserError(
                f"plan is {given!r:.80}: give the plan of a Result's choice, or None"
            ) from error


@dataclasses.dataclass(frozen=True)
class Auto:
    """Several ways to choose are compared by short trainings; nothing is to be set.

    Attributes:
      time_budget: seconds for the search. Compiling, which comes once per shape, is not counted.
      tolerance: with the size 'auto': the smallest coreset is looked for whose networks score at
        most so much below networks that were trained on everything.
      plan: of an earlier `Result.choice`, to be repeated whatever the clock shows; None makes one
        from the time budget.
      on_plan: a function that sees the plan before it is carried out; None for none.
      loss_fn: 'squared_error' where the targets are numbers, even if all of them are whole; 'auto'
        tells numbers from classes.
      scale: whether tables are standardised, see `border.check_data`.
    """

    time_budget: float = 60.0
    tolerance: float = 0.01
    plan: Plan | Mapping[str, Any] | None = None
    on_plan: Callable[[Plan], None] | None = None
    loss_fn: str = "auto"
    scale: bool = True

    def __post_init__(self):
        check_number("time_budget", self.time_budget, least=0, above=True)
        check_number("tolerance", self.tolerance, least=0, most=1)
        if self.plan is not None:
            object.__setattr__(self, "plan", Plan.of(self.plan))


def pool_of(facts: Facts, budget: float) -> tuple[int, int]:
    """How many candidates are chosen from, and how many a coreset should be good for.

    Args:
      facts: of the data.
      budget: seconds.
    """
    for most in POOLS:
        pool = min(facts.n, max(most, 2 * facts.size))
        outer = min(pool, max(most // 2, 500))
        one = Member(_fixed(facts))
        plan = Plan(pool, outer, 0, 2 * facts.size, (one,), 0, 2)
        if FEWEST * _choosing(one, plan, facts, 0.6) + _looking(plan, facts) < SHARE * budget / 2:
            break
    return pool, outer


def make(facts: Facts, budget: float, judge: float, network: float) -> Plan:
    """What can be done in the time.

    Args:
      facts: of the data.
      budget: seconds.
      judge: products per sample of all judges together, forward.
      network: the same of the network whose tangents are a view.
    """

    def fits(plan: Plan, share: float) -> bool:
        return seconds(plan, facts, judge, network) <= share * budget

    kinds = _kinds(facts)
    plan = Plan(*pool_of(facts, budget), 0, 2 * facts.size, kinds[:1], 0, 2)
    while not fits(plan, SHARE) and plan.swaps > 10:
        plan = dataclasses.replace(plan, swaps=plan.swaps // 2)
    for name, value in _STEPS:
        step: dict[str, Any] = {name: kinds[:value] if name == "members" else value}
        more = dataclasses.replace(plan, **step)
        plan = more if fits(more, SHARE if name == "networks" else OVER) else plan
    return plan if plan.networks else without_networks(plan)


def for_sizes(facts: Facts, budget: float, judge: float) -> tuple[int, int]:
    """`ordered` and `trainings` of a plan, for a share of the budget.

    Args:
      facts: of all candidates; their size is not used.
      budget: seconds.
      judge: products per sample of all judges together, forward.
    """
    room = SHARE * budget * SIZES_SHARE
    trainings, ordered = 0, 0
    for trainings in TRAININGS:
        one = 3 * judge * SIZE_STEPS * SIZE_BATCH / SMALL_PRODUCTS + 0.02
        comparing = trainings * one * (min(facts.n, LARGEST_ORDER).bit_length() + 3 * BETWEEN)
        for ordered in (LARGEST_ORDER, LARGEST_ORDER // 2, LARGEST_ORDER // 4):
            n, m = min(facts.n, ordered), min(facts.n, 1000) + facts.validation
            order = 2 * n**3 / FACTORS + 4000 * (m + n) * n / BYTES
            if comparing + len(_fixed(facts)) * order <= room:
                return ordered, trainings
    return ordered, trainings


def without_networks(plan: Plan) -> Plan:
    """The same without the view of networks, whose training takes long and cannot be cut short."""
    members = [
        member._replace(views=tuple(view for view in member.views if view != "tangents"))
        for member in plan.members
    ]
    return dataclasses.replace(plan, networks=0, members=tuple(members))


def _fixed(facts: Facts) -> tuple[str, ...]:
    """The views that need no network."""
    return ("gauss", "patches") if facts.pictures else ("linear", "gauss")


def _kinds(facts: Facts) -> tuple[Member, ...]:
    """The members, the most promising first."""
    classes = facts.num_classes > 0
    least, most = facts.noise
    cleaned = (True, False) if least > DOUBTFUL else (False, True) if most > 0.02 else (False,)
    views = (*_fixed(facts), "tangents")
    found = [Member(views, one) for one in cleaned]
    if facts.has_model:  # a coreset for one network: what its like sees counts most
        found[1:1] = [Member(("tangents",), cleaned[0]), Member(views[1:], cleaned[0])]
    if facts.validation:
        found[1:1] = [Member(views, cleaned[0], validated=True)]
    if classes:
        found.append(Member(views, cleaned[0], even=True))
        if facts.validation:
            found.append(Member(views, cleaned[0], validated=True, even=True))
    found.append(Member((), cleaned[0], start="stratified" if classes else "random"))
    if facts.validation:
        found.append(Member(("gauss",), cleaned[0], validated=True))
    found.append(Member(("gauss", "tangents"), cleaned[0]))
    found.append(Member(("gauss",), cleaned[0]))
    found.append(Member((), cleaned[0], start="herding"))
    found.append(Member((), cleaned[0], start="greedy"))
    found += [Member(views, one, even=True) for one in cleaned[1:] if classes]
    found += [Member(_fixed(facts), one) for one in cleaned]
    return tuple(found)


def seconds(plan: Plan, facts: Facts, judge: float, network: float) -> float:
    """The estimate.

    Args:
      plan: what is to be done.
      facts: of the data.
      judge: products per sample of all judges together, forward.
      network: the same of the network whose tangents are a view.
    """
    k, n = min(facts.size, plan.pool), plan.pool
    m = plan.outer + facts.validation
    steps = max(300, k) * min(128, k)
    total = _looking(plan, facts)
    total += plan.networks * 6 * network * (steps + 4 * (n + m)) / SMALL_PRODUCTS
    total += sum(_choosing(member, plan, facts, 0.6) for member in plan.members)
    total += plan.restarts * _choosing(plan.members[0], plan, facts, 1.0)
    total += plan.searches * _searching(k, n, judge)
    # Half of what is compared goes on to the next round, with as many trainings more.
    rounds = plan.seeds.bit_length() - 1
    trainings = 2 * (len(plan.members) + plan.restarts) * (1 + 0.5 * (rounds - 1))
    training = 3 * judge * STEPS * min(k, LARGEST_BATCH) + judge * m
    return total + trainings * (training / SMALL_PRODUCTS + 0.01)


def _searching(k: int, n: int, judge: float) -> float:
    """Seconds of one search by the judge's networks."""
    rows = 3 * _INNER_STEPS * min(1.2 * k, SEARCH_BATCH) + 3 * SEARCH_OUTER + 2 * n
    # Networks of tables are so small that their operations, and not their products, take the time.
    return SEARCH_STEPS * SEARCH_MASKS * (rows * judge / SMALL_PRODUCTS + _INNER_STEPS * 8e-5)


def _looking(plan: Plan, facts: Facts) -> float:
    """Seconds of the views that need no network, and of the votes."""
    n, width = plan.pool, facts.width
    found = 0.3 + len(_fixed(facts)) * 3 * (n**3 / 3 / FACTORS + 4e9 / FACTORS)
    if facts.pictures:
        found += 4 * n * 25 * 256 * width / SMALL_PRODUCTS
    return found + 40 * n * width / BYTES


def swap_seconds(facts: Facts, k: int, n: int, m: int, width: int) -> float:
    """Of one swap among `k` of `n` samples, judged by `m`, in one view of `width` numbers."""
    products = 2 * m * k * n + 4 * max(facts.num_classes, 1) * m * n
    return products / PRODUCTS + 2 * k**3 / FACTORS + (20 * m * n + 4 * n * width) / BYTES


def _choosing(member: Member, plan: Plan, facts: Facts, share: float) -> float:
    """Seconds until no swap helps, if that takes `share` K of them."""
    k, n, m = min(facts.size, plan.pool), plan.pool, plan.outer + facts.validation
    widths = {"patches": 4096, "tangents": 1024 * plan.networks}
    total = 0.0
    for view in member.views:
        width = widths.get(view, facts.width)
        swap = swap_seconds(facts, k, n, m, width)
        total += 2 * m * n * width / PRODUCTS + 0.05 + min(plan.swaps, share * k) * swap
    if member.start == "greedy":
        total += k * 24 * n * (n + facts.validation) / BYTES
    return total
