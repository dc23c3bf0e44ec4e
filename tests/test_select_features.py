"""Feature selection: networks and kernel regression on chosen inputs, through the same loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import pbcs_jax as pbcs
from pbcs_jax import nets
from pbcs_jax.choices import Inputs
from pbcs_jax.choices import inputs as inputs_lib
from pbcs_jax.choices.inputs import neighbourhood
from pbcs_jax.compute.plan import Compute
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives import Network, input_kernel, network_objective

TOLERANCE = 2e-3


def table(n=60, d=6, seed=0):
    x = jax.random.normal(jax.random.key(seed), (n, d))
    return x, (x[:, 1] + x[:, 4] > 0).astype(jnp.int32)


def some_masks(count, d, seed=3):
    return jax.random.bernoulli(jax.random.key(seed), 0.5, (count, d)).astype(jnp.float32)


def network(x, y, inner=Inner(steps=5), mesh=None, **settings):  # noqa: B008 (frozen)
    model = nets.as_model(nets.MLP(num_classes=2, hidden=(8,)))
    choice = Inputs(inputs_lib.numbers(None, x.shape[1:]))
    settings = Network(inner, **settings)
    return network_objective(model, x, y, choice, settings, compute=Compute(mesh))


class TestNetwork:
    def test_inputs_not_chosen_are_never_seen(self):
        """Whatever stands in them, the losses on the selected ones are the same."""
        x, y = table()
        masks = some_masks(3, 6)
        losses = []
        for seed in (5, 6):
            noise = jax.random.normal(jax.random.key(seed), x.shape)
            per_mask = [
                network(x + noise * (1 - mask), y, outer_on="selected")(
                    jax.random.key(0), mask[None]
                ).losses[0]
                for mask in masks
            ]
            losses.append(per_mask)
        np.testing.assert_allclose(*losses, rtol=1e-5)

    def test_all_inputs_are_scored_as_published(self):
        """With `outer_on='all'` what was not chosen meets weights that were never trained."""
        x, y = table()
        masks = some_masks(3, 6)
        both = [
            network(x, y, outer_on=on)(jax.random.key(0), masks).losses
            for on in ("all", "selected")
        ]
        assert np.abs(both[0] - both[1]).min() > 1e-4
        everything = jnp.ones((1, 6))
        same = [
            network(x, y, outer_on=on)(jax.random.key(0), everything).losses
            for on in ("all", "selected")
        ]
        np.testing.assert_allclose(*same)

    @pytest.mark.parametrize("outer_on", ["all", "selected"])
    def test_path_gradient_through_every_step_is_the_derivative(self, outer_on):
        """Of a smooth network: a step of training jumps where a rectifier switches."""
        x, y = table(n=20)

        def init(key, x):
            first, second = jax.random.split(key)
            return jax.random.normal(first, (6, 8)), jax.random.normal(second, (8, 2))

        evaluate = network_objective(
            nets.as_model((init, lambda params, x: jnp.tanh(x @ params[0]) @ params[1])),
            x,
            y,
            Inputs(inputs_lib.numbers(None, (6,))),
            Network(Inner(steps=3), outer_on=outer_on, path_steps=3),
            path=True,
        )
        mask, key = jnp.array([0.9, 0.2, 0.7, 0.4, 0.6, 0.0]), jax.random.key(0)
        found = evaluate(key, mask[None]).path_gradients[0]
        step = 3e-3
        steps = step * jnp.eye(6)
        up, down = (evaluate(key, mask + sign * steps).losses for sign in (1, -1))
        np.testing.assert_allclose(found, (up - down) / (2 * step), atol=TOLERANCE)

    def test_mini_batches_and_devices_change_nothing_but_rounding(self):
        x, y = table()
        masks = some_masks(5, 6)
        inner = Inner(steps=4, batch_size=16)
        found = [
            network(x, y, inner=inner, mesh=pbcs.mask_mesh(jax.devices()[:count]))(
                jax.random.key(0), masks
            ).losses
            for count in (1, 4)
        ]
        np.testing.assert_allclose(*found, rtol=1e-5)


class TestKernel:
    def test_outputs_are_those_of_a_regression_on_all_the_others(self):
        x, y = table(n=12)
        mask = jnp.array([1.0, 1, 0, 0, 1, 0])
        evaluate = input_kernel.input_kernel_objective(
            input_kernel.gather(x, y), pbcs.InputKernel(0.7, 0.1)
        )
        found = evaluate(jax.random.key(0), mask[None]).losses[0]
        chosen = np.asarray(x)[:, np.asarray(mask) > 0]
        gamma = 1 / (0.7 * 2 * chosen.var(0).sum())
        targets = np.eye(2)[np.asarray(y)] - 0.5
        errors = []
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            model = KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma)
            model.fit(chosen[rest], targets[rest])
            errors.append(np.sum((model.predict(chosen[[i]]) - targets[i]) ** 2))
        np.testing.assert_allclose(found, np.mean(errors), rtol=1e-3)

    @pytest.mark.parametrize("held_out", [False, True])
    @pytest.mark.parametrize("loss", ["squared_error", "brier", "cross_entropy"])
    def test_gradient(self, held_out, loss):
        x, y = table(n=30)
        groups = jnp.array([0, 0, 1, 2, 2, 3])
        validation = input_kernel.gather(*table(n=10, seed=8), groups) if held_out else None
        evaluate = input_kernel.input_kernel_objective(
            input_kernel.gather(x, y, groups),
            pbcs.InputKernel(0.5, 0.1, outer_loss=loss),
            validation=validation,
            path=True,
        )
        mask, key, step = jnp.array([0.9, 0.1, 0.7, 0.3]), jax.random.key(0), 1e-3
        found = evaluate(key, mask[None]).path_gradients[0]
        up, down = (evaluate(key, mask + sign * step * jnp.eye(4)).losses for sign in (1, -1))
        np.testing.assert_allclose(found, (up - down) / (2 * step), atol=TOLERANCE)

    def test_masks_of_nothing_and_of_everything(self):
        x, y = table()
        evaluate = input_kernel.input_kernel_objective(
            input_kernel.gather(x, y), pbcs.InputKernel(1.0, 1e-6), path=True
        )
        masks = jnp.stack([jnp.zeros(6), jnp.ones(6), jnp.array([0.0, 1, 0, 0, 1, 0])])
        found = evaluate(jax.random.key(0), masks)
        assert found.ok.all() and jnp.isfinite(found.path_gradients).all()
        # With nothing chosen all samples are alike, and each is given the mean of the others.
        others = (jnp.sum(jax.nn.one_hot(y, 2), 0) - jax.nn.one_hot(y, 2)) / (len(y) - 1)
        mean_error = jnp.mean(jnp.sum((others - jax.nn.one_hot(y, 2)) ** 2, -1))
        np.testing.assert_allclose(found.losses[0], mean_error, rtol=1e-2)

    def test_each_step_sees_other_samples(self):
        x, y = table(n=60)
        evaluate = input_kernel.input_kernel_objective(
            input_kernel.gather(x, y), pbcs.InputKernel(1.0, 0.1, samples=20)
        )
        mask = jnp.ones((1, 6))
        first, again, other = (evaluate(jax.random.key(k), mask).losses[0] for k in (0, 0, 1))
        assert first == again != other

    def test_pictures_move_by_one_pixel(self):
        """Each is as it was, or moved in one of four directions, its edge repeated."""
        pictures = np.random.default_rng(0).normal(size=(400, 3, 4, 2)).astype(np.float32)
        flat = jnp.asarray(pictures.reshape(400, -1))
        moved = input_kernel.shift(jax.random.key(0), flat, (3, 4, 2), 0.4)
        padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
        corners = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
        allowed = [padded[:, top : top + 3, left : left + 4] for top, left in corners]
        same = [np.all(moved.reshape(pictures.shape) == a, axis=(1, 2, 3)) for a in allowed]
        assert np.all(np.sum(same, axis=0) == 1)
        shares = np.mean(same, axis=1)
        assert abs(shares[0] - 0.6) < 0.1 and np.all(np.abs(shares[1:] - 0.1) < 0.06)

    def test_each_step_moves_other_pictures(self):
        x = jax.random.normal(jax.random.key(0), (30, 3, 3))
        y = (x[:, 1, 1] > 0).astype(jnp.int32)
        still, moving = (
            input_kernel.input_kernel_objective(
                input_kernel.gather(x, y), pbcs.InputKernel(1.0, 0.1, shifts=part), (3, 3)
            )
            for part in (0.0, 0.5)
        )
        mask = jnp.ones((1, 9))
        first, other = (still(jax.random.key(k), mask).losses[0] for k in (0, 1))
        assert first == other
        first, again, other = (moving(jax.random.key(k), mask).losses[0] for k in (0, 0, 1))
        assert first == again != other

    def test_bandwidth_and_ridge_are_chosen_by_leave_one_out(self):
        """Noise wants more ridge than a function that is known exactly."""
        x = jax.random.normal(jax.random.key(0), (80, 3))
        clean = jnp.sin(x[:, 0])
        noisy = clean + 2 * jax.random.normal(jax.random.key(1), clean.shape)
        ridges = [
            input_kernel.choose(jax.random.key(2), input_kernel.gather(x, y), 3)[1]
            for y in (clean, noisy)
        ]
        assert ridges[0] < ridges[1]


class TestSelect:
    @pytest.mark.parametrize("objective", [Network(Inner(steps=30), outer_on="selected"), "kernel"])
    def test_finds_the_inputs_that_matter(self, objective):
        x, y = table(n=200, d=8)
        result = pbcs.select_features(
            jax.random.key(0),
            x,
            y,
            nets.MLP(num_classes=2, hidden=(16,)),
            2,
            objective=objective,
            outer_steps=60,
            learning_rate=0.1,
        )
        assert result.indices.tolist() == [1, 4]
        assert result.history["outer_loss"].shape == (60,)

    def test_groups_are_chosen_whole(self):
        x, y = table(n=200, d=8)
        groups = np.array([0, 1, 1, 0, 2, 2, 3, 3])  # what matters, 1 and 4, is in groups 1 and 2
        result = pbcs.select_features(
            jax.random.key(0), x, y, None, 2, groups=groups, objective="kernel"
        )
        assert result.indices.tolist() == [1, 2]
        assert result.probabilities.shape == (4,)

    def test_regression_and_validation_data(self):
        x, _ = table(n=120)
        x_val, _ = table(n=50, seed=9)
        y, y_val = (jnp.sin(2 * a[:, 3]) + a[:, 0] for a in (x, x_val))
        result = pbcs.select_features(
            jax.random.key(0), x, y, None, 2, (x_val, y_val), objective="kernel"
        )
        assert result.indices.tolist() == [0, 3]

    def test_neighbours_help_where_inputs_are_noisy(self):
        """Nine pixels of 100 tell the classes apart, each hardly by itself."""
        keys = jax.random.split(jax.random.key(1), 2)
        y = jax.random.bernoulli(keys[0], 0.5, (150,)).astype(jnp.int32)
        signal = jnp.zeros((10, 10, 1)).at[2:5, 6:9].set(0.5)
        x = signal * y[:, None, None, None] + jax.random.normal(keys[1], (150, 10, 10, 1))
        wanted = np.flatnonzero(signal)
        settings = {
            "estimator": "path",
            "optimizer": "normalized_sgd",
            "learning_rate": 0.3,
            "outer_steps": 60,
            "num_masks": 4,
        }
        alone, together = (
            pbcs.select_features(
                jax.random.key(1), x, y, None, 9, objective="kernel", smooth=smooth, **settings
            )
            for smooth in (0.0, 0.8)
        )
        right = [len(np.intersect1d(result.indices, wanted)) for result in (alone, together)]
        assert right[1] > right[0]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"smooth": 0.5}, "pictures"),
            ({"objective": pbcs.InputKernel(shifts=0.5)}, "pictures"),
            ({"size": 0}, "size is 0"),
            ({"size": 7}, "of at most 6"),
            ({"objective": "magic"}, "objective is 'magic'"),
            ({"model": None, "objective": "network"}, "model is None"),
            ({"groups": [0, 1, 2]}, "groups have shape"),
            ({"groups": [0, 0, 0, 2, 2, 2]}, "without gaps"),
            ({"groups": [0.0, 1, 2, 3, 4, 5]}, "number of each input's group"),
            ({"objective": pbcs.Kernel()}, "InputKernel"),
            ({"outer_stepz": 3}, "outer_stepz"),
            ({"x": jnp.full((60, 6), jnp.nan)}, "NaN"),
        ],
    )
    def test_mistakes_are_named(self, change, message):
        x, y = table()
        given = {"x": x, "y": y, "model": nets.MLP(num_classes=2), "size": 2} | change
        with pytest.raises(pbcs.UserError, match=message):
            pbcs.select_features(jax.random.key(0), **given)


@pytest.mark.parametrize("shifts", [-0.1, 1.1])
def test_shifts_are_a_part(shifts):
    with pytest.raises(pbcs.UserError, match="of at least 0 and of at most 1"):
        pbcs.InputKernel(shifts=shifts)


def test_what_networks_are_scored_on_is_checked():
    with pytest.raises(pbcs.UserError, match="outer_on is 'some'"):
        Network(outer_on="some")
    x, y = table()
    with pytest.raises(pbcs.UserError, match="it is for inputs"):
        pbcs.select_coreset(
            jax.random.key(0), x, y, nets.MLP(), 5, objective=Network(outer_on="selected")
        )


class TestNeighbourhood:
    def test_is_the_mean_of_what_is_around(self):
        """Written out: each pixel has the Gaussian mean of all, weights adding up to 1."""
        gradient = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
        found = neighbourhood(np.arange(20).reshape(4, 5), 0.7)(jnp.asarray(gradient.ravel()))
        for row, column in np.ndindex(4, 5):
            rows, columns = np.indices((4, 5))
            weights = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * 0.7**2))
            expected = np.sum(weights * gradient) / weights.sum()
            np.testing.assert_allclose(found[row * 5 + column], expected, rtol=1e-5, atol=1e-6)

    def test_patches_learn_from_patches(self):
        """Alike ones stay as they are; what one patch knows reaches those beside it only."""
        smooth = neighbourhood(np.repeat(np.arange(3), 2 * 2).reshape(6, 2, 1), 0.5)
        np.testing.assert_allclose(smooth(jnp.ones(3)), 1, rtol=1e-6)
        spread = smooth(jnp.array([1.0, 0.0, 0.0]))
        assert spread[0] > spread[1] > 1e-2 > spread[2] >= 0
