"""Samples: ridge regression on the chosen candidates, solved exactly, scored on the outer data.

A mask's model is W = argmin sum_i m_i |phi_i W - t_i|^2 + ridge |W|^2, with fixed features phi. It
has a closed form, and so has its derivative: one more unit of candidate i changes W by
A^-1 phi_i (t_i - phi_i W)', A = sum_i m_i phi_i phi_i' + ridge. With G = dL/dW that is

    dL/dm_i = (phi_i A^-1 G) . (t_i - phi_i W)        exact, for all n candidates, chosen or not

so the pathwise gradient of a mask costs two products of the candidates with a [d, classes] matrix.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jax.sharding import Mesh

from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.objectives.network import Objective
from pbcs_jax.outer import masks
from pbcs_jax.outer.estimators import Evaluation
from pbcs_jax.outer.settings import Settings

# Up to so many numbers the products of all features are kept; beyond, they are made when needed.
LARGEST_GRAM = 1 << 27
# Ridge regression on one-hot targets is linear in them: as logits its outputs are too timid.
LOGIT_SCALE = 10.0


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The proxy's own settings.

    Attributes:
      features: a name, see `representations.make`; or `[n, d]` numbers of your own; or, with
        validation data, a pair of such arrays for the candidates and the validation data.
      ridge: relative to the mean squared length of the features; 0 chooses, see `ridge.py`.
      outer_loss: 'squared_error' (of one-hot targets), 'brier', 'cross_entropy', 'error_rate', or a
        function of (outputs, targets).
      candidate_weight: the candidates' own mean loss counts this much beside the validation's, for
        the chosen ones by leave-one-out, each class as much as in the validation set. It keeps a
        small one from being over-fitted, even if half of the labels are wrong; choose it where K is
        larger than that set.
      candidate_loss: what that is the mean of; 'auto' is 'absolute_error' for classes, which wrong
        labels do not lead astray, and the outer loss for regression.
      soften: 'kernel_then_network' starts from s moved by this much towards K/n.
      exchanges: of the objective 'kernel': at the end so many chosen samples at most are exchanged
        for better ones, see `exchange.py`. For clean data; they would fit few validation data, or
        wrong labels, too well.
      settings: of the outer loop; None is `default_settings(n)`.
    """

    features: object = "auto"
    ridge: float = 0.0
    outer_loss: str | losses.LossFn = "squared_error"
    candidate_weight: float = 0.0
    candidate_loss: str | losses.LossFn = "auto"
    soften: float = 0.3
    exchanges: int = 0
    settings: Settings | None = None

    def __post_init__(self):
        if self.ridge < 0:
            raise UserError(f"kernel.ridge is {self.ridge}: it must not be negative")
        if self.candidate_weight < 0:
            raise UserError(f"kernel.candidate_weight is {self.candidate_weight}: at least 0")
        if self.exchanges < 0:
            raise UserError(f"kernel.exchanges is {self.exchanges}: it must not be negative")
        if not 0 <= self.soften <= 1:
            raise UserError(f"kernel.soften is {self.soften}: use a value from 0 to 1")


def default_settings(n: int) -> Settings:
    """The outer loop's settings for n candidates.

    The policy gradient alone gives the best coresets where it is affordable: what one mask tells of
    one candidate falls as n grows. With many, the pathwise gradient, which tells of all at once,
    goes ahead.
    """
    if n <= 5000:
        return Settings(num_masks=32, outer_steps=400, learning_rate=0.05)
    return Settings(
        num_masks=8, outer_steps=100, learning_rate=0.1, estimator="hybrid", path_until=0.5
    )


class Data(NamedTuple):
    """What all masks see. Rows are the n candidates, then the v validation examples.

    Attributes:
      features: `[n + v, d]`, or with a Gram matrix `[n, n + v]`, its rows of the candidates.
      targets: `[c, n + v]`.
      classes: `[n + v]` integers, or the targets of a regression once more.
      weights: `[n + v]`, of the outer loss; they add up to 1.
    """

    features: jax.Array
    targets: jax.Array
    classes: jax.Array
    weights: jax.Array


def kernel_objective(
    features: jax.Array,
    y: jax.Array,
    *,
    capacity: int,
    ridge: float,
    validation: tuple[jax.Array, jax.Array] | None = None,
    outer_loss: str | losses.LossFn = "squared_error",
    candidate_weight: float = 0.0,
    candidate_loss: str | losses.LossFn = "auto",
    path: bool = False,
    mask_chunk: int = 0,
    mesh: Mesh | None = None,
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` that solves M ridge regressions.

    Args:
      features: `[n, d]` of the candidates, from `representations.normalise`.
      y: `[n]` integer classes, or `[n]` or `[n, c]` regression targets.
      capacity: rows a coreset has at most, see `masks.capacities`.
      ridge: > 0.
      validation: `(features [v, d], y)`, held-out outer data; the candidates themselves if None.
      outer_loss: see `Kernel`.
      candidate_weight: see `Kernel`.
      candidate_loss: see `Kernel`.
      path: whether to give dL/dm.
      mask_chunk: masks that a device works on side by side; 0 chooses.
      mesh: the devices to spread the masks over; `mesh_lib.solver_mesh()` if None.
    """
    loss_fn = losses.get(outer_loss)
    if candidate_loss == "auto":
        is_classes = jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer)
        candidate_loss = "absolute_error" if is_classes else outer_loss
    candidate_loss_fn = losses.get(candidate_loss)
    if path:
        losses.check_gradient(loss_fn)
    if not ridge > 0:
        raise UserError(f"ridge is {ridge}: it must be above 0")
    n = len(y)
    data, is_gram = gather(features, y, validation, candidate_weight, capacity)
    is_regression = not jnp.issubdtype(data.classes.dtype, jnp.integer)
    if is_regression and isinstance(outer_loss, str) and outer_loss != "squared_error":
        raise UserError(f"outer_loss {outer_loss!r} is for classes: use 'squared_error'")
    on_cpu = jax.default_backend() == "cpu"
    mesh = mesh or mesh_lib.solver_mesh()
    data = mesh_lib.replicate(data, mesh)
    if not mask_chunk:
        # Features are read once for a whole chunk; rows of a Gram matrix are a mask's own, and on
        # CPU those of one stay in the cache.
        mask_chunk = 1 if is_gram and on_cpu else 8
    solve = _solve_gram if is_gram else _solve_features
    v = len(data.weights) - n
    candidates_count = candidate_weight > 0 or validation is None
    # Beside validation data the candidates guard against fitting these too well. A wrong label must
    # not be chosen for its own sake, so the chosen ones are judged by leave-one-out.
    held_out = candidate_weight > 0 and validation is not None

    # Outputs and targets are [c, n + v] here: short rows are slow to go through on CPU.
    def per_example(loss_fn, outputs, data):
        if loss_fn is losses.squared_error:
            return jnp.sum((outputs - data.targets) ** 2, axis=0)
        return loss_fn(outputs.T * LOGIT_SCALE, data.classes)

    def outer_of(outputs, data):
        values = per_example(loss_fn, outputs, data)
        if held_out and candidate_loss_fn is not loss_fn:
            candidates = per_example(candidate_loss_fn, outputs, data)
            values = jnp.where(jnp.arange(n + v) < n, candidates, values)
        return data.weights @ values

    def evaluate_one(data, mapped):
        indices, weights = mapped
        root = jnp.sqrt(weights)
        outputs, products, alone = solve(data, n, indices, root, ridge, candidates_count or path)
        place = jnp.where(weights > 0, indices, n + v)  # beyond the end: padding is dropped
        if held_out:
            outputs = outputs.at[:, place].set(alone(), mode="drop")
        loss, pull = jax.vjp(lambda outputs: outer_of(outputs, data), outputs)
        metrics = {}
        if not is_regression:
            best = jnp.max(outputs, axis=0)
            own = jnp.sum(jnp.where(data.targets > 0, outputs, 0), axis=0)
            right = (own == best) & (best > jnp.min(outputs, axis=0))  # all alike is no answer
            counts = data.weights > 0
            metrics["outer_accuracy"] = jnp.sum(counts & right) / jnp.sum(counts)
        ok = jnp.isfinite(loss)
        if not path:
            return loss, metrics, ok, None
        (slope,) = pull(jnp.ones_like(loss))
        if held_out:
            slope = slope.at[:, place].set(0, mode="drop")
        missing = data.targets[:, :n] - outputs[:, :n]
        return loss, metrics, ok, jnp.sum(products(slope) * missing, axis=0)

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, mask_chunk)

    def evaluate(data: Data, key: jax.Array, all_masks: jax.Array) -> Evaluation:
        del key  # nothing here is random
        packed = masks.pack_masks(all_masks, capacity)
        values, metrics, ok, paths = mapped_over_masks(data, (packed.indices, packed.weights))
        return Evaluation(values, ok, paths, packed.masks, metrics)

    return jax.tree_util.Partial(evaluate, data)


def gather(
    features: jax.Array,
    y: jax.Array,
    validation: tuple[jax.Array, jax.Array] | None,
    candidate_weight: float,
    capacity: int,
) -> tuple[Data, bool]:
    """The data of an objective, and whether the features are those of a Gram matrix."""
    n = len(y)
    y = jnp.asarray(y)
    rows, labels = [jnp.asarray(features)], [y]
    if validation is not None:
        rows.append(jnp.asarray(validation[0]))
        labels.append(jnp.asarray(validation[1]).astype(y.dtype))
    everything, classes = jnp.concatenate(rows), jnp.concatenate(labels)
    v = len(classes) - n
    weights = jnp.full((n,), 1 / n)
    if v:
        share = candidate_weight / (1 + candidate_weight)
        own = share * like_validation(*labels)
        weights = jnp.concatenate([own, jnp.full((v,), (1 - share) / v)])
    # With fewer features than rows the products are singular: the primal form is exact there.
    is_gram = n * (n + v) <= LARGEST_GRAM and everything.shape[1] >= capacity
    kept = jax.jit(lambda a, b: a @ b.T)(everything[:n], everything) if is_gram else everything
    return Data(kept, encode(classes).T, classes, weights), is_gram


def like_validation(y: jax.Array, y_validation: jax.Array) -> jax.Array:
    """Weights `[n]` with which each class has the share of the candidates that it has there.

    The validation data say what is wanted: where one class has most of the candidates, their plain
    mean would be the loss of that class. One example more of each keeps few of them from ruling.
    """
    if not jnp.issubdtype(y.dtype, jnp.integer):
        return jnp.full((len(y),), 1 / len(y))
    length = int(jnp.maximum(jnp.max(y), jnp.max(y_validation))) + 1
    wanted = jnp.bincount(y_validation, length=length) + 1
    weights = (wanted / jnp.maximum(jnp.bincount(y, length=length), 1))[y]
    return weights / jnp.sum(weights)


def _solve_gram(data, n, indices, root, ridge, candidates_count):
    """A mask's regression.

    Returns:
      Outputs `[c, n + v]`; what turns dL/doutputs into (phi_i A^-1 G)' for all candidates; and what
      gives the chosen ones' outputs `[c, capacity]`, each without itself, t - [C^-1 t]_i / C^-1_ii.
    """
    # Indices come from `pack_masks`: checking them again takes as long as the copy.
    chosen = data.features.at[indices].get(mode="promise_in_bounds")  # [capacity, n + v]
    factor = _factor(chosen[:, indices] * root[:, None] * root, ridge)
    targets = data.targets.T[indices] * root[:, None]
    dual = cho_solve(factor, targets)
    outputs = (dual * root[:, None]).T @ chosen

    def products(slope):
        inner = cho_solve(factor, (chosen @ slope.T) * root[:, None])
        inside = (inner * root[:, None]).T @ chosen[:, :n]
        return (slope @ data.features.T - inside) / ridge

    return outputs, products, lambda: _left_out(targets, dual, _inverse_diagonal(factor), root)


def _solve_features(data, n, indices, root, ridge, candidates_count):
    """The same from features alone, in the dual or the primal form, whichever is smaller."""
    chosen = data.features[indices] * root[:, None]  # [capacity, d]
    targets = data.targets.T[indices] * root[:, None]
    if chosen.shape[0] <= chosen.shape[1]:
        factor = _factor(chosen @ chosen.T, ridge)
        dual = cho_solve(factor, targets)
        weights = chosen.T @ dual
        alone = lambda: _left_out(targets, dual, _inverse_diagonal(factor), root)  # noqa: E731
        inverse = lambda g: (g - chosen.T @ cho_solve(factor, chosen @ g)) / ridge  # noqa: E731
    else:
        factor = _factor(chosen.T @ chosen, ridge)
        inverse = lambda g: cho_solve(factor, g)  # noqa: E731
        weights = inverse(chosen.T @ targets)
        missing = targets - chosen @ weights

        def alone():
            free = 1 - jnp.sum(chosen * inverse(chosen.T).T, axis=1)
            return _left_out(targets, missing, free, root)

    start = 0 if candidates_count else n
    outputs = (data.features[start:] @ weights).T
    outputs = jnp.concatenate([jnp.zeros((outputs.shape[0], start)), outputs], axis=1)

    def products(slope):
        return (data.features[:n] @ inverse(data.features.T @ slope.T)).T

    return outputs, products, alone


def _left_out(targets, numerator, denominator, root):
    """`[c, capacity]` outputs of samples left out; both have been multiplied with their weights."""
    return ((targets - numerator / denominator[:, None]) / jnp.maximum(root, 1e-6)[:, None]).T


def _inverse_diagonal(factor) -> jax.Array:
    """The diagonal of the inverse, from Cholesky's factor."""
    half = solve_triangular(factor[0], jnp.eye(len(factor[0])), lower=True)
    return jnp.sum(half**2, axis=0)


def _factor(matrix: jax.Array, ridge: float):
    """Cholesky's factor of matrix + ridge; the ridge is no finer than float32 can tell."""
    floor = 8 * jnp.finfo(matrix.dtype).eps * jnp.trace(matrix)
    return cho_factor(matrix + jnp.maximum(ridge, floor) * jnp.eye(len(matrix)), lower=True)


def encode(y: jax.Array) -> jax.Array:
    """Targets `[n, c]` of a regression: one-hot less its mean for classes, else as they are."""
    if not jnp.issubdtype(y.dtype, jnp.integer):
        return y.reshape(y.shape[0], -1).astype(jnp.float32)
    classes = int(jnp.max(y)) + 1
    return jax.nn.one_hot(y, classes) - 1 / classes
