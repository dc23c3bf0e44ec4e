"""Features: kernel ridge regression on the chosen inputs, solved exactly, judged by leave-one-out.

With mask m, k(a, b) = exp(-sum_j m_j (a_j - b_j)^2 / scale), the scale being `bandwidth` times the
mean of that sum over all pairs: a mask that picks livelier inputs is not thereby less smooth. The
outputs for each sample, from a regression on all others, have a closed form, so that no held-out
data are needed, and the loss is a smooth function of the mask: its exact gradient speaks of all
inputs at once, chosen or not.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, solve_triangular
from jax.sharding import Mesh

from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.errors import UserError
from pbcs_jax.inner import losses
from pbcs_jax.objectives.features import check_groups
from pbcs_jax.objectives.network import Objective
from pbcs_jax.objectives.sample_kernel import LOGIT_SCALE, encode
from pbcs_jax.outer.estimators import Evaluation

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 3))


@dataclasses.dataclass(frozen=True)
class FeatureKernel:
    """The closed-form objective's own settings.

    Attributes:
      bandwidth: squared distance at which similarity has fallen to 1/e, over the mean one; 0
        chooses, see `choose`.
      ridge: of the regression; 0 chooses.
      outer_loss: 'squared_error' (of one-hot targets), 'brier', 'cross_entropy', 'error_rate', or a
        function of (outputs, targets).
      samples: random ones that each outer step works with; its time grows with their cube.
      shifts: of pictures `[N, height, width, ...]`: so large a part of them is moved by one pixel,
        at random and anew at each step. Where many inputs are chosen, those that tell a few samples
        apart by chance are then of no use.
      exchanges: at the end so many chosen inputs at most are exchanged for better ones, see
        `feature_exchange.py`. Measured for clean inputs only.
      exchange_samples: random ones that all exchanges are judged by.
    """

    bandwidth: float = 0.0
    ridge: float = 0.0
    outer_loss: str | losses.LossFn = "squared_error"
    samples: int = 500
    shifts: float = 0.0
    exchanges: int = 0
    exchange_samples: int = 1000

    def __post_init__(self):
        if self.bandwidth < 0 or self.ridge < 0:
            raise UserError(
                f"feature kernel: bandwidth is {self.bandwidth} and ridge {self.ridge}: use 0, "
                "which chooses, or more"
            )
        if min(self.samples, self.exchange_samples) < 2:
            raise UserError(
                f"feature kernel: samples are {self.samples} and exchange_samples "
                f"{self.exchange_samples}: use at least 2"
            )
        if not 0 <= self.shifts <= 1:
            raise UserError(f"feature kernel: shifts are {self.shifts}: use a value from 0 to 1")
        if self.exchanges < 0:
            raise UserError(f"feature kernel: exchanges are {self.exchanges}: use 0 or more")


class Data(NamedTuple):
    """What all masks see: `x [N, d]`, `targets [N, c]`, `classes [N]`, `groups [d]`."""

    x: jax.Array
    targets: jax.Array
    classes: jax.Array
    groups: jax.Array


def gather(x: jax.Array, y: jax.Array, groups: Any = None) -> Data:
    """The data of an objective."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    numbers = jnp.asarray(check_groups(groups, x.shape[1:])).ravel()
    return Data(x.reshape(len(x), -1).astype(jnp.float32), encode(y), y, numbers)


def feature_kernel_objective(
    data: Data,
    *,
    bandwidth: float,
    ridge: float,
    samples: int = 500,
    shifts: float = 0.0,
    picture: tuple[int, ...] = (),
    validation: Data | None = None,
    outer_loss: str | losses.LossFn = "squared_error",
    path: bool = False,
    mask_chunk: int = 1,
    mesh: Mesh | None = None,
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` over n groups of inputs.

    Args:
      data: from `gather`.
      bandwidth: > 0, see `FeatureKernel`.
      ridge: > 0.
      samples: see `FeatureKernel`.
      shifts: see `FeatureKernel`.
      picture: the shape of a sample, `(height, width, ...)`, for `shifts`.
      validation: held-out outer data, from `gather`; leave-one-out if None.
      outer_loss: see `FeatureKernel`.
      path: whether to give dL/dm.
      mask_chunk: masks that a device works on side by side.
      mesh: the devices to spread the masks over; `mesh_lib.solver_mesh()` if None.
    """
    loss_fn = losses.get(outer_loss)
    if path:
        losses.check_gradient(loss_fn)
    if shifts and len(picture) < 2:
        raise UserError(
            f"feature kernel: shifts are {shifts} and a sample has shape {picture}: use 0 unless "
            "samples are pictures, of shape [height, width, ...]"
        )
    mesh = mesh or mesh_lib.solver_mesh()
    is_regression = not jnp.issubdtype(data.classes.dtype, jnp.integer)
    if is_regression and isinstance(outer_loss, str) and outer_loss != "squared_error":
        raise UserError(f"outer_loss {outer_loss!r} is for classes: use 'squared_error'")

    def outer_of(mask, rows, held_out):
        keep = mask[rows.groups]
        scale = _scale(rows.x, keep, bandwidth)
        gram = jnp.exp(-_distances(rows.x, rows.x, keep) / scale)
        dual, free = _solve(gram, rows.targets, ridge)
        if held_out is None:
            outputs, judged = rows.targets - dual / free[:, None], rows
        else:
            outputs = jnp.exp(-_distances(held_out.x, rows.x, keep) / scale) @ dual
            judged = held_out
        if loss_fn is losses.squared_error:
            values = jnp.sum((outputs - judged.targets) ** 2, axis=-1)
        else:
            values = loss_fn(outputs * LOGIT_SCALE, judged.classes)
        metrics = {}
        if not is_regression:
            right = jnp.argmax(outputs, -1) == jnp.argmax(judged.targets, -1)
            metrics["outer_accuracy"] = jnp.mean(right)
        return jnp.mean(values), metrics

    def evaluate_one(shared, mask):
        if not path:
            return *outer_of(mask, *shared), None
        (loss, metrics), slope = jax.value_and_grad(outer_of, has_aux=True)(mask, *shared)
        return loss, metrics, slope

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, mask_chunk)

    def evaluate(data: tuple[Data, Data | None], key: jax.Array, masks: jax.Array) -> Evaluation:
        rows, held_out = data
        if samples < len(rows.x):
            drawn = jax.random.choice(key, len(rows.x), (samples,), replace=False)
            x, targets, classes, groups = rows
            rows = Data(x[drawn], targets[drawn], classes[drawn], groups)
        if shifts:
            shift_key = jax.random.fold_in(key, 1)
            rows = rows._replace(x=shift(shift_key, rows.x, picture, shifts))
        values, metrics, paths = mapped_over_masks((rows, held_out), masks)
        return Evaluation(values, jnp.isfinite(values), paths, metrics=metrics)

    return jax.tree_util.Partial(evaluate, mesh_lib.replicate((data, validation), mesh))


def shift(key: jax.Array, x: jax.Array, picture: tuple[int, ...], part: float) -> jax.Array:
    """Moves a random part of the pictures by one pixel up, down, left or right.

    What comes in from outside is what the edge has.

    Args:
      key: PRNG key, consumed.
      x: `[N, d]`, flattened pictures.
      picture: their shape, `(height, width, ...)`.
      part: how many, from 0 to 1.

    Returns:
      `[N, d]`.

    >>> x = jnp.arange(4.0)[None]
    >>> shift(jax.random.key(0), x, (2, 2), 1.0).astype(int).tolist()
    [[0, 0, 2, 2]]
    """
    which_key, where_key = jax.random.split(key)
    pictures = x.reshape(-1, *picture)
    moved = jax.random.bernoulli(which_key, part, (len(x),))
    direction = jnp.where(moved, jax.random.randint(where_key, (len(x),), 0, 4), 4)
    for number, (axis, step) in enumerate(((1, 1), (1, -1), (2, 1), (2, -1))):
        sources = jnp.clip(jnp.arange(picture[axis - 1]) - step, 0, picture[axis - 1] - 1)
        is_so = (direction == number).reshape(-1, *(1 for _ in picture))
        pictures = jnp.where(is_so, jnp.take(pictures, sources, axis=axis), pictures)
    return pictures.reshape(x.shape)


def choose(
    key: jax.Array,
    data: Data,
    size: int,
    samples: int = 500,
    bandwidths: Sequence[float] = BANDWIDTHS,
    ridges: Sequence[float] = RIDGES,
    draws: int = 4,
) -> tuple[float, float]:
    """The bandwidth and the ridge with which random masks of this size do best, by leave-one-out.

    Args:
      key: PRNG key, consumed.
      data: from `gather`.
      size: K, groups in a mask.
      samples: random ones to try with.
      bandwidths: to choose from.
      ridges: to choose from.
      draws: random masks, each with other samples.
    """
    if len(bandwidths) == len(ridges) == 1:
        return bandwidths[0], ridges[0]
    count = int(data.groups.max()) + 1
    samples = min(samples, len(data.x))
    grid = jnp.asarray(ridges)

    @jax.jit
    def errors(key, bandwidth, data):
        row_key, mask_key = jax.random.split(key)
        rows = jax.random.choice(row_key, len(data.x), (samples,), replace=False)
        x, t = data.x[rows], data.targets[rows]
        keep = (jax.random.permutation(mask_key, count) < size).astype(x.dtype)[data.groups]
        gram = jnp.exp(-_distances(x, x, keep) / _scale(x, keep, bandwidth))
        values, vectors = jnp.linalg.eigh(gram)

        def error(ridge):
            inverse = 1 / (jnp.maximum(values, 0) + ridge)
            dual = vectors @ (inverse[:, None] * (vectors.T @ t))
            return jnp.mean((dual / ((vectors**2) @ inverse)[:, None]) ** 2)

        return jax.lax.map(error, grid)

    keys = jax.random.split(key, draws)
    table = [sum(errors(k, b, data) for k in keys) for b in bandwidths]
    best = int(jnp.argmin(jnp.stack(table)))
    return float(bandwidths[best // len(ridges)]), float(ridges[best % len(ridges)])


def _distances(a: jax.Array, b: jax.Array, keep: jax.Array) -> jax.Array:
    """Squared distances `[A, B]` with weight `keep [d]` on each column: linear in it."""
    return (a**2 @ keep)[:, None] + (b**2 @ keep) - 2 * (a * keep) @ b.T


def _scale(x: jax.Array, keep: jax.Array, bandwidth: float) -> jax.Array:
    return bandwidth * 2 * (jnp.var(x, axis=0) @ keep) + 1e-6


@jax.custom_vjp
def _solve(gram: jax.Array, targets: jax.Array, ridge: float) -> tuple[jax.Array, jax.Array]:
    """C^-1 t `[N, c]` and the diagonal of C^-1 `[N]`, C = gram + ridge."""
    return _solve_forward(gram, targets, ridge)[0]


def _solve_forward(gram, targets, ridge):
    floor = 8 * jnp.finfo(gram.dtype).eps * len(gram)
    factor, _ = cho_factor(gram + jnp.maximum(ridge, floor) * jnp.eye(len(gram)), lower=True)
    half = solve_triangular(factor, jnp.eye(len(gram)), lower=True)
    inverse = half.T @ half
    dual = inverse @ targets
    return (dual, jnp.diagonal(inverse)), (inverse, dual)


def _solve_backward(kept, slopes):
    inverse, dual = kept
    of_dual, of_free = slopes
    back = inverse @ of_dual
    of_gram = -(back @ dual.T) - (inverse * of_free) @ inverse
    return of_gram, back, None


_solve.defvjp(_solve_forward, _solve_backward)
