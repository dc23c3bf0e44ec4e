"""What is compared: coresets, their scores, and what is trained next."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from pbcs_jax.portfolio import bilevel
from pbcs_jax.portfolio import judge as judge_lib
from pbcs_jax.portfolio import members as members_lib
from pbcs_jax.portfolio.members import Member, Prepared
from pbcs_jax.portfolio.plan import Plan

AT_ONCE = 2
"""Trainings of each judge in one trial."""


class Judged(NamedTuple):
    """One coreset that was compared.

    Attributes:
      name: of the member that chose it, and of its start.
      score: the mean over judges and their trainings: accuracy on candidates that were not chosen
        and on validation data, each class by its share; of regressions 1 - relative error.
      error: the standard error of that mean over trainings; None of a single one.
      trainings: of each judge.
    """

    name: str
    score: float
    error: float | None
    trainings: int


class Entry(NamedTuple):
    """A coreset in the comparison, `indices` into the pool."""

    member: Member
    name: str
    indices: np.ndarray


class Seen:
    """What has been chosen and judged so far."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.scores: dict[int, list[float]] = {}

    def add(self, entry: Entry) -> bool:
        """Whether it is new."""
        if any(np.array_equal(entry.indices, one.indices) for one in self.entries):
            return False
        self.entries.append(entry)
        return True

    def mean(self, i: int) -> float:
        """Of all trainings."""
        return float(np.mean(self.scores[i]))

    def ranked(self, which: Iterable[int]) -> list[int]:
        """The best first; a mean over few trainings is drawn towards that of all coresets."""
        of_all = np.mean([self.mean(i) for i in self.scores])
        expected = {i: (sum(s) + of_all) / (len(s) + 1) for i, s in self.scores.items()}
        return sorted(which, key=lambda i: -expected[i])

    def last(self) -> list[int]:
        """Those that were compared to the end, or nearly so."""
        most = max(map(len, self.scores.values()))
        return [i for i, found in self.scores.items() if 2 * len(found) >= most]

    def judged(self, i: int) -> Judged:
        """As it is reported."""
        found = self.scores[i]
        error = float(np.std(found, ddof=1) / np.sqrt(len(found))) if len(found) > 1 else None
        return Judged(self.entries[i].name, self.mean(i), error, len(found))


def trials(
    key: jax.Array, prepared: Prepared, judge: judge_lib.Judge, plan: Plan, seen: Seen
) -> Iterator[str]:
    """Does one thing after another, and names it; it may be stopped after each."""

    def trained(i: int) -> None:
        begin = len(seen.scores.get(i, ()))
        found = judge(seen.entries[i].indices, range(begin, begin + AT_ONCE))
        seen.scores[i] = seen.scores.get(i, []) + found.mean(0).tolist()

    def tried(members: Sequence[Member]) -> Iterator[tuple[int, str]]:
        for member in members:
            name = member.name
            chosen = members_lib.choose(member, prepared, key, plan.swaps)
            if seen.add(Entry(member, name, chosen)):
                yield len(seen.entries) - 1, name

    def halved(which: list[int]) -> Iterator[str]:
        while len(which) > 1:
            which = seen.ranked(which)[: -(-len(which) // 2)]
            if len(seen.scores[which[0]]) >= plan.seeds:
                return
            for i in which:
                trained(i)
                yield "Comparing"

    def restarted() -> Iterator[str]:
        ranked = seen.ranked(seen.scores)
        kind = next(seen.entries[i].member for i in ranked if seen.entries[i].member.views)
        again = [kind._replace(start="herding", seed=1 + i) for i in range(plan.restarts)]
        fresh = []
        for i, name in tried(again):
            trained(i)
            fresh.append(i)
            yield name
        yield from halved([ranked[0], *fresh])

    outer_key, search_key = jax.random.split(jax.random.fold_in(key, 1))
    problems: dict[bytes, bilevel.Problem] = {}

    def searched(number: int) -> Iterator[str]:
        best = seen.ranked(seen.last())[0]
        member, name, indices = seen.entries[best]
        allowed = prepared.allowed(member).copy()
        allowed[indices] = True
        data, who = prepared.data, allowed.tobytes()
        if who not in problems:
            weights = data.outer_weights(judge.believed, members_lib.VALIDATION_SHARE)
            given = prepared.models, allowed, len(indices), weights
            problems[who] = bilevel.problem(outer_key, data, *given)
        own_key = jax.random.fold_in(search_key, number)
        for chosen in bilevel.searched(own_key, problems[who], indices):
            if chosen is None:
                yield "Searching with networks"
            elif seen.add(Entry(member, f"{name}, networks", chosen)):
                own = len(seen.entries) - 1
                while len(seen.scores.get(own, ())) < len(seen.scores[best]):
                    trained(own)
                yield seen.entries[own].name

    for i in range(len(seen.entries)):
        trained(i)
    for i, name in tried(plan.members):
        trained(i)
        yield name
    yield from halved(list(range(len(seen.entries))))
    if plan.searches:
        yield from searched(0)
    if plan.restarts:
        yield from restarted()
    for number in range(1, plan.searches):
        yield from searched(number)
