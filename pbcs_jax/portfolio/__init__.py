"""`objective='auto'`: several ways to choose, short trainings that compare them, one winner.

facts.py       what is known of the data before anything is chosen
plan.py        a time budget becomes a plan: what is tried, and how long; the plan can be repeated
views.py       what regressions look at
members.py     the ways to choose
judge.py       short trainings on held-out candidates
bilevel.py     the paper's search by the judge's networks, from the best so far
sizes.py       the search for K, with the size 'auto'
comparison.py  what was chosen and judged so far, and what is tried next
search.py      the plan, carried out
"""

from pbcs_jax.portfolio.plan import Auto, Plan
from pbcs_jax.portfolio.search import Choice, Found, search

__all__ = ["Auto", "Choice", "Found", "Plan", "search"]
