"""Inputs: kernel ridge regression on the chosen ones, solved exactly, judged by leave-one-out.

With mask m, k(a, b) = exp(-sum_j m_j (a_j - b_j)^2 / scale), the scale being `bandwidth` times the
mean of that sum over all pairs: a mask that picks livelier inputs is not thereby less smooth. The
outputs for each sample, from a regression on all others, have a closed form, so that no held-out
data are needed, and the loss is a smooth function of the mask: its exact gradient covers all inputs
at once, chosen or not.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax import progress
from pbcs_jax.choices import Inputs
from pbcs_jax.choices import inputs as inputs_lib
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError, check_known, check_number, check_switch
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.objectives import ridge as ridge_lib
from pbcs_jax.objectives.exchange import exchange_inputs
from pbcs_jax.outer.base import Built, Evaluation, Objective
from pbcs_jax.outer.settings import Settings

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclasses.dataclass(frozen=True)
class InputKernel:
    """Masks over inputs are judged by kernel ridge regression on the chosen ones.

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
        `exchange.py`. Measured for clean inputs only.
      exchange_samples: random ones that all exchanges are judged by.
      loss_fn: see `Kernel`.
      scale: see `Kernel`.
    """

    bandwidth: float = 0.0
    ridge: float = 0.0
    outer_loss: str | losses.LossFn = "squared_error"
    samples: int = 500
    shifts: float = 0.0
    exchanges: int = 0
    exchange_samples: int = 1000
    loss_fn: str = "auto"
    scale: bool = True

    def __post_init__(self):
        for name in ("bandwidth", "ridge"):
            check_number(f"kernel.{name}", getattr(self, name), least=0)
        for name, least in (("exchanges", 0), ("samples", 2), ("exchange_samples", 2)):
            check_number(f"kernel.{name}", getattr(self, name), least=least, whole=True)
        check_switch("scale", self.scale)
        check_known("loss_fn", self.loss_fn, ridge_lib.LOSS_FNS, ": ridge regression has no other")
        losses.check(self.outer_loss)
        check_number("kernel.shifts", self.shifts, least=0, most=1)

    def loop_settings(self, n: int, size: int, estimator: Any = None) -> Settings:
        """The outer loop's settings where the user sets none."""
        return Settings(
            num_masks=8, outer_steps=150, learning_rate=0.1, estimator="hybrid", path_until=0.5
        )

    def build(
        self, key, x, y, model, size, validation, choice: Inputs, settings: Settings, compute
    ) -> Built:
        """The objective of these data, and the exchanges that end the selection, if any."""
        progress.stage("Choosing the kernel")
        data = gather(x, y, choice.groups)
        bandwidth, ridge = choose(
            key,
            data,
            size,
            self.samples,
            (self.bandwidth,) if self.bandwidth else BANDWIDTHS,
            (self.ridge,) if self.ridge else ridge_lib.RIDGES,
        )
        held_out = validation and gather(validation[0], validation[1], choice.groups)

        def make(samples: int, path: bool) -> Objective:
            chosen = dataclasses.replace(self, bandwidth=bandwidth, ridge=ridge, samples=samples)
            shape = np.shape(x)[1:]
            return input_kernel_objective(data, chosen, shape, held_out, path, compute)

        evaluate = make(self.samples, settings.gradient_estimator().needs_path)
        if not self.exchanges:
            return Built(evaluate)
        exact, slopes = (make(self.exchange_samples, path) for path in (False, True))
        n = int(np.max(choice.groups)) + 1
        return Built(
            evaluate,
            lambda key, chosen: exchange_inputs(key, exact, slopes, chosen, n, self.exchanges),
        )


class Data(NamedTuple):
    """What all masks see: `x [N, d]`, `targets [N, c]`, `classes [N]`, `groups [d]`."""

    x: jax.Array
    targets: jax.Array
    classes: jax.Array
    groups: jax.Array


def gather(x: jax.Array, y: jax.Array, groups: Any = None) -> Data:
    """The data of an objective."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    numbers = jnp.asarray(inputs_lib.numbers(groups, x.shape[1:])).ravel()
    return Data(x.reshape(len(x), -1).astype(jnp.float32), ridge_lib.encode(y), y, numbers)


def input_kernel_objective(
    data: Data,
    settings: InputKernel,
    picture: tuple[int, ...] = (),
    validation: Data | None = None,
    path: bool = False,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` over n groups of inputs.

    Args:
      data: from `gather`.
      settings: with a bandwidth and a ridge above 0.
      picture: the shape of a sample, `(height, width, ...)`, for `shifts`.
      validation: held-out outer data, from `gather`; leave-one-out if None.
      path: whether to give dL/dm.
      compute: devices and chunks; of CPU devices one only, see `mesh.solver_mesh`.
    """
    samples, shifts, ridge = settings.samples, settings.shifts, settings.ridge
    loss_fn = ridge_lib.outer_loss_of(settings.outer_loss, data.classes, path)
    if shifts and len(picture) < 2:
        raise UserError(
            f"kernel.shifts is {shifts} and a sample has shape {picture}: use 0 unless "
            "samples are pictures, of shape [height, width, ...]"
        )
    mesh = compute.mesh or mesh_lib.solver_mesh()

    def outer_of(mask, rows, held_out):
        keep = mask[rows.groups]
        scale = _scale(rows.x, keep, settings.bandwidth)
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
            values = loss_fn(outputs * ridge_lib.LOGIT_SCALE, judged.classes)
        metrics = {}
        if is_classes(data.classes):
            right = jnp.argmax(outputs, -1) == jnp.argmax(judged.targets, -1)
            metrics["outer_accuracy"] = jnp.mean(right)
        return jnp.mean(values), metrics

    def evaluate_one(shared, mask):
        if not path:
            return *outer_of(mask, *shared), None
        (loss, metrics), slope = jax.value_and_grad(outer_of, has_aux=True)(mask, *shared)
        return loss, metrics, slope

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, compute.mask_chunk or 1)

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
    ridges: Sequence[float] = ridge_lib.RIDGES,
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
    grid = jnp.asarray(ridges, jnp.float32)

    @jax.jit
    def errors(key, bandwidth, data):
        row_key, mask_key = jax.random.split(key)
        rows = jax.random.choice(row_key, len(data.x), (samples,), replace=False)
        x, t = data.x[rows], data.targets[rows]
        keep = (jax.random.permutation(mask_key, count) < size).astype(x.dtype)[data.groups]
        gram = jnp.exp(-_distances(x, x, keep) / _scale(x, keep, bandwidth))
        return ridge_lib.errors_by_ridge(gram, t, grid)

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
    half = ridge_lib.inverse_root(ridge_lib.factor(gram, ridge))
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
