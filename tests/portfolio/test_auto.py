"""`objective='auto'`: nothing to set, one plan gives one choice, and the judge decides."""

import json

import jax
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax import nets
from pbcs_jax.border import check_data
from pbcs_jax.errors import UserError
from pbcs_jax.portfolio import facts as facts_lib
from pbcs_jax.portfolio import judge as judge_lib
from pbcs_jax.portfolio import plan as plan_lib
from pbcs_jax.portfolio.facts import Facts
from pbcs_jax.portfolio.members import Member

TINY = pbcs.Plan(
    pool=120,
    outer=120,
    networks=1,
    swaps=10,
    members=(
        Member(("linear", "gauss", "tangents"), cleaned=True),
        Member(("gauss",)),
        Member(start="stratified"),
    ),
    restarts=2,
    seeds=4,
    searches=1,
)


def blobs(n=120, wrong=0.0, seed=0):
    rng = np.random.default_rng(seed)
    true = np.arange(n) % 3
    x = rng.normal(size=(n, 4)) + 2.5 * np.eye(3, 4)[true]
    y = np.where(rng.random(n) < wrong, (true + 1) % 3, true)
    return x.astype(np.float32), y, true


@pytest.fixture(scope="module")
def found():
    x, y, _ = blobs()
    return pbcs.select_coreset(0, x, y, size=9, plan=TINY, progress=False)


def test_the_plan_of_a_result_repeats_it_bit_by_bit(found, tmp_path):
    x, y, _ = blobs()
    assert found.choice.plan == TINY
    found.save(tmp_path / "result.npz")
    loaded = pbcs.Result.load(tmp_path / "result.npz")
    assert loaded.choice == found.choice
    given = json.loads(json.dumps(loaded.choice.plan.to_dict()))
    again = pbcs.select_coreset(0, x, y, size=9, plan=given, progress=False, time_budget=1e-3)
    np.testing.assert_array_equal(again.indices, found.indices)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    assert again.choice.judged == found.choice.judged


def test_the_winner_is_the_best_of_what_was_compared_to_the_end(found):
    judged = found.choice.judged
    most = max(one.trainings for one in judged)
    best = max(one.score for one in judged if one.trainings == most)
    winner = judged[0]
    assert winner.name == found.choice.winner
    assert 2 * winner.trainings >= most and winner.score >= best - 1e-9
    plain = max(one.score for one in judged if one.name == "stratified")
    assert found.choice.lead == pytest.approx(winner.score - plain)


def test_the_judges_networks_search_from_the_best(found):
    searched = [one for one in found.choice.judged if one.name.endswith(", networks")]
    assert len(searched) == 1
    # It is compared by as many trainings as the best was when it started.
    assert searched[0].trainings in {one.trainings for one in found.choice.judged} - {2}


def test_rare_classes_are_counted_by_the_validation_data():
    x, y, _ = blobs()
    few = np.flatnonzero((y > 0) | (np.arange(len(y)) < 6))  # two of class 0
    validation = x[:30], y[:30]
    data = facts_lib.gather(
        np.random.default_rng(0), x[few], y[few], validation, 3, len(few), len(few)
    )
    weights = data.outer_weights(np.ones(len(few), bool), 0.5)
    assert weights.sum() == pytest.approx(1)
    of = lambda group: (weights[: len(few)][y[few] == group], weights[len(few) :][y[:30] == group])  # noqa: E731
    own, trusted = of(0)
    np.testing.assert_allclose(own, trusted[: len(own)], rtol=1e-5)  # all samples of it alike
    for group in (1, 2):
        own, trusted = of(group)
        assert own.sum() == pytest.approx(trusted.sum(), rel=1e-5)
    totals = [sum(map(np.sum, of(group))) for group in range(3)]
    np.testing.assert_allclose(totals, 1 / 3, rtol=1e-5)
    assert data.outer_weights(np.ones(len(few), bool), 0.0)[len(few) :].sum() == 0


def test_a_search_that_the_clock_ends_is_repeated_by_its_plan():
    x, y, _ = blobs()
    found = pbcs.select_coreset(1, x, y, size=9, time_budget=0.05, progress=False)
    assert found.choice.plan.trials == 1 and found.indices.shape == (9,)
    again = pbcs.select_coreset(1, x, y, size=9, plan=found.choice.plan, progress=False)
    np.testing.assert_array_equal(again.indices, found.indices)
    assert again.choice.judged == found.choice.judged


def test_wrong_labels_are_left_out_and_suspected():
    x, y, true = blobs(wrong=0.3)
    first = TINY.to_dict()["members"][0]
    plan = TINY.to_dict() | {"restarts": 0, "searches": 0, "members": [first]}
    found = pbcs.select_coreset(0, x, y, size=9, plan=plan, progress=False)
    assert np.mean(y != true) > 0.2
    assert not np.any((y != true)[found.indices])
    suspects = found.suspects
    wrong = (y != true)[suspects.indices]
    precisions = np.cumsum(wrong) / np.arange(1, len(wrong) + 1)
    assert np.sum(precisions * wrong) / np.sum(y != true) > 0.9  # the average precision
    assert np.all(np.diff(suspects.scores) <= 0)


@pytest.mark.parametrize("kind", ["model", "regression", "pictures", "pool"])
def test_other_data(kind):
    x, y, _ = blobs()
    model, options, pool = None, {}, 120
    members = TINY.members
    if kind == "model":
        model = nets.MLP(num_classes=3, hidden=(8,))
    if kind == "regression":
        y, options = x[:, 0] * 3 + 100, {"loss_fn": "squared_error"}
        members = (*members[:2], Member(start="random"), Member(start="greedy"))
    if kind == "pictures":
        x = np.random.default_rng(0).normal(size=(120, 8, 8, 1)).astype(np.float32)
        members = (Member(("gauss", "patches", "tangents")), *members[1:])
    if kind == "pool":
        pool = 60
    plan = TINY.to_dict() | {"pool": pool, "members": [m._asdict() for m in members]}
    found = pbcs.select_coreset(0, x, y, model, 9, plan=plan, progress=False, **options)
    assert len(np.unique(found.indices)) == 9
    assert found.probabilities.sum() == pytest.approx(9, rel=1e-4)
    assert found.suspects is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"outer_steps": 3}, "option is 'outer_steps', which objective='auto' chooses by itself"),
        ({"start": np.full(120, 0.1)}, "start is given"),
        ({"mask_chunk": 2}, "compute is given"),
        ({"time_budget": 0}, "time_budget is 0"),
        ({"time_budget": float("inf")}, "time_budget is inf"),
        ({"plan": {"pool": 3}}, "plan is"),
        ({"plan": TINY.to_dict() | {"seeds": 0}}, "plan.seeds is 0"),
        ({"size": None}, "size is None"),
        ({"size": 121}, "size is 121"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options, said):
    x, y, _ = blobs()
    with pytest.raises(UserError, match=said) as caught:
        pbcs.select_coreset(0, x, y, **({"size": 9, "progress": False} | options))
    assert "\n" not in str(caught.value)


def test_a_larger_budget_plans_more_and_within_its_time():
    facts = Facts(5000, 100, 10, (28, 28, 1), 100, False)
    before = 0
    for budget in (5.0, 10.0, 60.0, 300.0):
        plan = plan_lib.make(facts, budget, 1e6, 1e6)
        trials = len(plan.members) + plan.restarts
        assert trials >= before
        assert plan_lib.seconds(plan, facts, 1e6, 1e6) <= plan_lib.OVER * budget
        before = trials
    assert plan.networks > 0 and plan.restarts > 4


def test_wrong_labels_are_looked_for_where_the_validation_data_tell_of_them():
    clean = Facts(1000, 50, 10, (20,), 100, False, outvoted=0.12, doubted=0.11)
    noisy = clean._replace(outvoted=0.5)
    assert not plan_lib.make(clean, 60.0, 1e4, 1e4).members[0].cleaned
    assert plan_lib.make(noisy, 60.0, 1e4, 1e4).members[0].cleaned


def test_a_judge_prefers_right_labels_and_does_not_see_the_chosen():
    x, y, true = blobs(wrong=0.3)
    data = check_data(x, y)
    pool = facts_lib.gather(np.random.default_rng(0), data.x, data.y, None, 3, 120, 120)
    facts = Facts(120, 12, 3, (4,), 0, False)
    judge = judge_lib.Judge(jax.random.key(0), pool, judge_lib.networks(facts, None), 12)
    right = np.flatnonzero(y == true)[:12]
    wrong = np.flatnonzero(y != true)[:12]
    assert judge(right, range(2)).mean() > judge(wrong, range(2)).mean() + 0.2


def test_a_judge_heeds_only_labels_that_are_believed():
    x, y, true = blobs(wrong=0.9)
    data = check_data(x, y)
    pool = facts_lib.gather(np.random.default_rng(0), data.x, data.y, None, 3, 120, 120)
    facts = Facts(120, 6, 3, (4,), 0, False)
    nets = judge_lib.networks(facts, None)[1:]
    right, wrong = (np.flatnonzero((y == true) == which)[:6] for which in (True, False))
    everyone = judge_lib.Judge(jax.random.key(0), pool, nets, 6)
    assert everyone(wrong, range(2)).mean() > everyone(right, range(2)).mean()
    warned = judge_lib.Judge(jax.random.key(0), pool, nets, 6, believed=y == true)
    assert warned(right, range(2)).mean() > warned(wrong, range(2)).mean()


def test_recall_counts_classes_alike_and_rare_ones_with_the_others():
    y, answers = np.array([0] * 98 + [1, 1]), np.zeros(100, int)
    recall = judge_lib.mean_recall([(y, answers, 1.0)], np.array([0.5, 0.5]))
    assert 0.5 <= recall < 0.7  # of the plain mean 0.98
    missing = judge_lib.mean_recall([(y[:98], answers[:98], 1.0)], np.array([0.5, 0.5]))
    assert missing == pytest.approx(1.0)  # nothing is known of the other class
