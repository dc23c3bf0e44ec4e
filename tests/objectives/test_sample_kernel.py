"""The closed-form objective: its solution, its exact gradient, its ridge, and what it selects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import pbcs_jax as pbcs
from pbcs_jax import nets
from pbcs_jax.errors import UserError
from pbcs_jax.objectives import embeddings
from pbcs_jax.objectives import ridge_solution as solution
from pbcs_jax.objectives import sample_kernel as kernel_lib
from pbcs_jax.objectives.ridge import choose_ridge

N, V = 30, 12
RNG = np.random.default_rng(0)
ONE = pbcs.Compute(pbcs.mask_mesh(jax.devices()[:1]))


def problem(d, classes=3):
    x, x_val = RNG.standard_normal((N, d)), RNG.standard_normal((V, d))
    y, y_val = RNG.integers(0, classes, N), np.arange(V) % classes
    x, x_val = x / np.sqrt(d), x_val / np.sqrt(d)
    return x.astype(np.float32), y, x_val.astype(np.float32), y_val


def centred(y, classes=3):
    return np.eye(classes)[y] - 1 / classes


def make(x, y, *, capacity, validation=None, path=False, differences=False, **settings):
    kernel = pbcs.Kernel(**settings)
    return pbcs.kernel_objective(
        x,
        y,
        kernel,
        capacity=capacity,
        validation=validation,
        path=path,
        differences=differences,
        compute=ONE,
    )


def evaluate(x, y, masks, **options):
    return jax.jit(make(x, y, **{"capacity": len(y), "ridge": 0.1, **options}))(
        jax.random.key(0), jnp.asarray(masks, jnp.float32)
    )


@pytest.fixture(params=["gram", "features"])
def form(request, monkeypatch):
    """Both ways to the same numbers: products of all features kept, or made when needed."""
    if request.param == "features":
        monkeypatch.setattr(kernel_lib, "LARGEST_GRAM", 0)
    return request.param


@pytest.mark.parametrize("d", [5, 100])  # the primal and the dual form
@pytest.mark.parametrize("ridge", [1.0, 1e-2, 1e-6])
def test_solution_is_that_of_scikit_learn(form, d, ridge):
    x, y, x_val, y_val = problem(d)
    masks = RNG.random((4, N)) < 0.4
    if ridge < 1e-3 and d == 5:
        masks[:, :3] = True  # more rows than columns: the ridge is then all but nothing
    found = evaluate(x, y, masks, ridge=ridge, validation=(x_val, y_val))
    assert found.ok.all()
    for mask, loss, accuracy in zip(
        masks, found.losses, found.metrics["outer_accuracy"], strict=True
    ):
        model = KernelRidge(alpha=ridge).fit(x[mask].astype(float), centred(y)[mask])
        outputs = model.predict(x_val)
        np.testing.assert_allclose(
            loss,
            ((outputs - centred(y_val)) ** 2).sum(1).mean(),
            rtol=2e-3 if ridge < 1e-3 else 1e-4,
        )
        np.testing.assert_allclose(accuracy, (outputs.argmax(1) == y_val).mean(), rtol=1e-6)


def dense_loss(m, x, y, x_val, y_val, ridge):
    """The outer loss as a function of weights, written out in float64."""
    x, x_val = x.astype(float), x_val.astype(float)
    a = x.T @ (m[:, None] * x) + ridge * np.eye(x.shape[1])
    w = np.linalg.solve(a, x.T @ (m[:, None] * centred(y)))
    return ((x_val @ w - centred(y_val)) ** 2).sum(1).mean()


@pytest.mark.parametrize("d", [5, 100])
def test_path_gradient_by_finite_differences(form, d):
    """For hard and for relaxed masks, and for every candidate, chosen or not."""
    x, y, x_val, y_val = problem(d)
    masks = np.stack([RNG.random(N) < 0.4, RNG.random(N)]).astype(np.float32)
    found = evaluate(x, y, masks, validation=(x_val, y_val), path=True)
    for mask, path in zip(masks.astype(float), found.path_gradients, strict=True):
        exact = np.empty(N)
        for i in range(N):
            step = 1e-5 * (np.arange(N) == i)
            up, down = (dense_loss(mask + s, x, y, x_val, y_val, 0.1) for s in (step, -step))
            exact[i] = (up - down) / 2e-5
        np.testing.assert_allclose(path, exact, atol=2e-4 * np.abs(exact).max())


@pytest.mark.parametrize("outer_loss", ["squared_error", "brier", "cross_entropy", "error_rate"])
def test_all_losses_with_and_without_validation_and_weighted(form, outer_loss):
    x, y, x_val, y_val = problem(20)
    masks = RNG.random((2, N)) < 0.5
    path = outer_loss != "error_rate"
    for options in (
        {},
        {"validation": (x_val, y_val)},
        {"validation": (x_val, y_val), "candidate_weight": 0.5},
    ):
        found = evaluate(x, y, masks, outer_loss=outer_loss, path=path, **options)
        assert found.ok.all() and (found.losses > 0).all()
        assert not path or np.abs(found.path_gradients).max() > 0
    with pytest.raises(UserError, match="has no gradient"):
        make(x, y, capacity=N, ridge=1.0, outer_loss="error_rate", path=True)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
@pytest.mark.parametrize("d", [5, 100])
def test_beside_validation_data_the_chosen_are_judged_without_themselves(form, d, loss):
    """Against fitting anew for each; else a wrong label would be chosen for its own sake."""
    x, y, x_val, y_val = problem(d)
    y = np.where(np.arange(N) < 5, 0, y)
    mask = RNG.random(N) < 0.5
    given = {"validation": (x_val, y_val), "ridge": 0.1}
    held = evaluate(x, y, mask[None], **given).losses[0]
    given |= {"candidate_weight": 0.5, "candidate_loss": loss}
    both = evaluate(x, y, mask[None], **given).losses[0]
    errors = []
    for i in range(N):
        rest = mask & (np.arange(N) != i)
        model = KernelRidge(alpha=0.1).fit(x[rest].astype(float), centred(y)[rest])
        output = model.predict(x[i : i + 1])[0]
        if loss == "squared_error":
            errors.append(((output - centred(y)[i]) ** 2).sum())
        else:
            p = np.exp(10 * output) / np.exp(10 * output).sum()
            errors.append(np.abs(p - np.eye(len(p))[y[i]]).sum())
    # The three classes are alike in the validation data; they are not among the candidates.
    assert len(set(np.bincount(y))) > 1
    mean = np.mean([np.mean(np.array(errors)[y == c]) for c in range(3)])
    np.testing.assert_allclose(both, (held + 0.5 * mean) / 1.5, rtol=1e-4)


@pytest.mark.parametrize("ridge", [1e-6, 1.0])
@pytest.mark.parametrize("d", [4, 100])
def test_masks_of_none_one_and_all_and_singular_kernels(form, ridge, d):
    """Duplicates with contradicting labels, columns of zeros, fewer columns than rows."""
    x, y, x_val, y_val = problem(d)
    x[10:20], x[:, 3] = x[0], 0
    masks = np.zeros((3, N))
    masks[1, 0] = masks[2] = 1
    found = evaluate(x, y, masks, ridge=ridge, validation=(x_val, y_val), path=True)
    assert found.ok.all()
    assert np.isfinite(found.path_gradients).all()
    # Nothing chosen: all outputs are 0.
    np.testing.assert_allclose(found.losses[0], (centred(y_val) ** 2).sum(1).mean(), rtol=1e-5)
    exact = dense_loss(masks[2], x, y, x_val, y_val, max(ridge, 1e-5))
    np.testing.assert_allclose(found.losses[2], exact, rtol=5e-3)


def test_ridge_by_leave_one_out_is_that_of_leaving_one_out():
    """Against the obvious loop; and wrong labels ask for more of it."""
    x, y, _, _ = problem(8)
    ridges = (1e-3, 0.3, 100.0)
    errors = []
    for ridge in ridges:
        total = 0.0
        for i in range(N):
            rest = np.arange(N) != i
            model = KernelRidge(alpha=ridge).fit(x[rest].astype(float), centred(y)[rest])
            total += ((model.predict(x[i : i + 1]) - centred(y)[i]) ** 2).sum()
        errors.append(total)
    chosen = choose_ridge(jax.random.key(0), jnp.asarray(x), y, N, ridges=ridges)
    assert chosen == pytest.approx(ridges[int(np.argmin(errors))])
    clean = (x[:, 0] > 0).astype(int)
    noisy = np.where(RNG.random(N) < 0.4, 1 - clean, clean)
    x_val = RNG.standard_normal((200, 8)).astype(np.float32) / np.sqrt(8)
    outer = (x_val, (x_val[:, 0] > 0).astype(int))
    pick = lambda y: choose_ridge(jax.random.key(0), jnp.asarray(x), y, 20, outer)  # noqa: E731
    assert pick(noisy) > pick(clean)


def blobs(n, classes=4, wrong=0.0, d=8, seed=0):
    rng = np.random.default_rng(seed)
    true = np.arange(n) % classes
    x = rng.standard_normal((n, d)) + 2.5 * np.eye(classes, d)[true]
    y = np.where(rng.random(n) < wrong, rng.integers(0, classes, n), true)
    return x.astype(np.float32), y, true


@pytest.mark.parametrize("estimator", ["pge", "path", "hybrid", "gumbel"])
def test_wrong_labels_are_left_out(estimator):
    x, y, true = blobs(200, wrong=0.5)
    x_val, _, y_val = blobs(80, seed=1)
    result = pbcs.select_coreset(
        jax.random.key(0),
        x,
        y,
        None,
        20,
        (x_val, y_val),
        objective="kernel",
        outer_steps=150,
        estimator=estimator,
    )
    assert np.mean(y != true) > 0.3
    assert np.mean((y != true)[result.indices]) <= 0.1
    assert np.bincount(y[result.indices], minlength=4).min() >= 2


def test_without_validation_for_regression_and_for_one_to_a_thousand_classes():
    x = RNG.standard_normal((60, 5)).astype(np.float32)
    options = {"objective": "kernel", "outer_steps": 5, "num_masks": 4}
    for y in (x[:, 0], x[:, :2], np.arange(60) % 2, np.arange(60) % 30 * 33):
        result = pbcs.select_coreset(jax.random.key(0), x, y, None, 10, **options)
        assert result.indices.shape == (10,)
        assert np.isfinite(result.history["outer_loss"]).all()
    line = np.r_[np.linspace(-1, 1, 59), 50.0].astype(np.float32)[:, None]
    y = np.r_[2 * line[:59, 0], -300.0]  # the last point is wrong, and far out
    options |= {"outer_steps": 60, "num_masks": 16}
    result = pbcs.select_coreset(
        jax.random.key(0), line, y, None, 8, (line[:59], y[:59]), **options
    )
    assert 59 not in result.indices


def test_own_features_decide():
    """The inputs say nothing; the embeddings say all."""
    embeddings, y, true = blobs(120, wrong=0.4)
    val_embeddings, _, y_val = blobs(40, seed=1)
    x, x_val = np.zeros((120, 3), np.float32), np.zeros((40, 3), np.float32)
    own = pbcs.Kernel(embeddings=(embeddings, val_embeddings))
    options = {"objective": own, "outer_steps": 150}
    result = pbcs.select_coreset(jax.random.key(0), x, y, None, 12, (x_val, y_val), **options)
    assert np.mean((y != true)[result.indices]) <= 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "tree"}, "objective is 'tree'"),
        ({"objective": "kernel_then_network"}, "model is None"),
        ({"objective": pbcs.Kernel(embeddings="cnn")}, "embeddings is 'cnn'"),
        ({"objective": pbcs.Kernel(embeddings="ntk")}, "give a model"),
        ({"objective": pbcs.Kernel(embeddings=np.ones((3, 2)))}, r"give \(60, d\)"),
        ({"objective": "kernel", "outer_loss": "brierr"}, "loss is 'brierr'"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    x, y, _ = blobs(60)
    with pytest.raises(UserError, match=message):
        pbcs.select_coreset(jax.random.key(0), x, y, None, 10, **options)
    for bad in ({"ridge": -1.0}, {"exchanges": -2}, {"candidate_weight": -1.0}):
        with pytest.raises(UserError, match=next(iter(bad))):
            pbcs.Kernel(**bad)


def test_any_selection_starts_from_given_probabilities():
    x, y, _ = blobs(80, wrong=0.3)
    model, shared = nets.MLP(num_classes=4, hidden=(8,)), (jax.random.key(3), x, y)
    proxy = pbcs.select_coreset(*shared, None, 12, objective="kernel", num_masks=8, outer_steps=40)
    network = pbcs.Network(pbcs.Inner(steps=2))
    both = [
        pbcs.select_coreset(
            *shared,
            model,
            12,
            objective=network,
            start=pbcs.soften(proxy.probabilities, 12, amount),
            outer_steps=0,
        )
        for amount in (0.0, 0.5, 1.0)
    ]
    np.testing.assert_array_equal(both[0].indices, proxy.indices)
    np.testing.assert_allclose(both[0].probabilities, proxy.probabilities, atol=1e-5)
    # Softened, nothing is decided any more; at 1 the kernel is forgotten.
    assert np.all((both[1].probabilities > 0) & (both[1].probabilities < 1))
    np.testing.assert_allclose(both[2].probabilities, 12 / 80, atol=1e-5)


def test_kernel_then_network_is_the_kernel_and_then_the_network():
    x, y, _ = blobs(80, wrong=0.3)
    model, key = nets.MLP(num_classes=4, hidden=(8,)), jax.random.key(3)
    found = pbcs.select_coreset(
        key, x, y, model, 12, objective="kernel_then_network", outer_steps=0
    )
    proxy = pbcs.select_coreset(jax.random.fold_in(key, 1), x, y, None, 12, objective="kernel")
    start = pbcs.soften(proxy.probabilities, 12)
    np.testing.assert_allclose(found.probabilities, pbcs.project(start, 12), atol=1e-6)


def test_the_candidates_own_loss_guards_a_small_validation_set():
    """24 validation points are over-fitted in a long run; with the candidates' loss they are not.

    By the true loss of the coreset, although four in five of the candidates' labels are random.
    """
    settings = pbcs.Settings(num_masks=16, outer_steps=300, schedule="constant")
    true_losses = []
    for seed in range(3):
        x, y, _ = blobs(400, wrong=0.8, d=10, seed=seed)
        x_val, _, y_val = blobs(24, d=10, seed=100 + seed)
        x_test, _, y_test = blobs(1000, d=10, seed=200 + seed)
        rows = embeddings.normalise(*map(jnp.asarray, (x, x_val, x_test)))
        options = {"ridge": 0.3, "validation": (rows[1], y_val)}
        for candidate_weight in (0.0, 0.3):
            objective = make(rows[0], y, capacity=60, candidate_weight=candidate_weight, **options)
            state = pbcs.init(jax.random.key(seed), 400, 30, settings)
            state, _ = pbcs.run(state, objective, settings)
            chosen = pbcs.draw_coreset(jax.random.key(0), state.probabilities, 30)
            mask = np.isin(np.arange(400), chosen)[None]
            found = evaluate(rows[0], y, mask, ridge=0.3, validation=(rows[2], y_test))
            true_losses.append(float(found.losses[0]))
    without, guarded = np.reshape(true_losses, (3, 2)).mean(0)
    assert guarded < without - 0.02


def with_less_without(mask, i, *problem_and_ridge):
    one = np.arange(len(mask)) == i
    return dense_loss(np.where(one, 1.0, mask), *problem_and_ridge) - dense_loss(
        np.where(one, 0.0, mask), *problem_and_ridge
    )


@pytest.mark.parametrize("d", [5, 100])  # the primal and the dual form
@pytest.mark.parametrize("held_out", [True, False])
def test_differences_are_those_of_fitting_anew(monkeypatch, d, held_out):
    """For every candidate, chosen or not, padded or not, against float64."""
    monkeypatch.setattr(solution, "SKETCH", 1 << 16)
    x, y, x_val, y_val = problem(d)
    masks = (RNG.random((2, N)) < 0.4).astype(np.float32)
    outer = (x_val, y_val) if held_out else (x, y)
    validation = outer if held_out else None
    found = evaluate(x, y, masks, validation=validation, differences=True)
    for mask, differences in zip(masks.astype(float), found.differences, strict=True):
        exact = np.array([with_less_without(mask, i, x, y, *outer, 0.1) for i in range(N)])
        np.testing.assert_allclose(differences, exact, atol=0.03 * np.abs(exact).max())


def test_few_random_combinations_estimate_the_differences():
    """Over many keys their mean is near, and one of them already tells the order of candidates."""
    x, y, *outer = problem(40)
    mask = (RNG.random(N) < 0.4).astype(np.float32)
    objective = jax.jit(make(x, y, capacity=N, ridge=0.1, validation=outer, differences=True))
    found = [objective(jax.random.key(i), mask[None]).differences[0] for i in range(50)]
    exact = np.array([with_less_without(mask, i, x, y, *outer, 0.1) for i in range(N)])
    np.testing.assert_allclose(np.mean(found, 0), exact, atol=0.2 * np.abs(exact).max())
    assert np.mean([np.corrcoef(one, exact)[0, 1] for one in found]) > 0.9


def test_differences_need_the_squared_error_of_the_outer_data():
    x, y, *outer = problem(5)
    for settings in ({"outer_loss": "brier"}, {"candidate_weight": 0.5}):
        with pytest.raises(UserError, match="is for the outer loss 'squared_error'"):
            make(x, y, capacity=N, ridge=0.1, validation=outer, differences=True, **settings)


def test_large_problems_take_differences_where_there_are_any():
    settings = pbcs.Kernel().loop_settings
    assert settings(4000, 500).estimator == settings(10**6, 1000).estimator == "differences"
    assert settings(4000, 200).estimator == "pge" == settings(4000, 500, "pge").estimator
    assert settings(4000, 500, "pge").num_masks == 32
    assert pbcs.Kernel(outer_loss="brier").loop_settings(4000, 500).estimator == "pge"
    assert pbcs.Kernel(candidate_weight=1.0).loop_settings(9000, 500).estimator == "hybrid"


def test_differences_find_a_better_coreset_than_chance():
    x = RNG.standard_normal((400, 20)).astype(np.float32)
    y = (x[:, :4] @ RNG.standard_normal((4, 3)) + RNG.standard_normal((400, 3))).argmax(1)
    result = pbcs.select_coreset(
        0, x, y, None, 40, objective="kernel", estimator="differences", progress=False
    )
    losses = result.history["outer_loss"]
    assert losses[-1] < 0.9 * losses[0] and len(set(result.indices.tolist())) == 40


def test_large_tables_are_normalised_in_place(monkeypatch):
    monkeypatch.setattr(embeddings, "LARGE_TABLE", 0)
    x, x_val = RNG.standard_normal((2, 50, 7)).astype(np.float32) * 3 + 1
    expected = embeddings.normalise(jnp.asarray(x), jnp.asarray(x_val))
    validation = x_val.copy(), np.zeros(50, int)
    given = x.copy()
    found = embeddings.embed(
        "raw", jax.random.key(0), given, np.zeros(50, int), None, 5, validation
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_array_equal(validation[0], x_val)
    np.testing.assert_allclose(given, expected[0], atol=1e-6)
