"""Samples: ridge regression on the chosen candidates, solved exactly, scored on the outer data.

A mask's model is W = argmin sum_i m_i |phi_i W - t_i|^2 + ridge |W|^2, with fixed embeddings phi.
It has a closed form, and so has its derivative: one more unit of candidate i changes W by
A^-1 phi_i (t_i - phi_i W)', A = sum_i m_i phi_i phi_i' + ridge. With G = dL/dW that is

    dL/dm_i = (phi_i A^-1 G) . (t_i - phi_i W)        exact, for all n candidates, chosen or not

so the pathwise gradient of a mask costs two products of the candidates with a [d, classes] matrix.

A whole unit more or less is a change of rank one. With h_i = phi_i A^-1 phi_i', r_i = t_i - phi_i W
and S = sum_j w_j phi_j' phi_j of the outer data (squared error, weights w), q_i = phi_i A^-1 S A^-1
phi_i', the difference that candidate i makes to the loss is exactly

    L(with i) - L(without i) = dL/dm_i / (1 +- h_i) +- q_i |r_i|^2 / (1 +- h_i)^2

with + for candidates that are not chosen and - for those that are. h and q are squared lengths; for
all n candidates they are estimated from a few random combinations of their coordinates.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jax.sharding import Mesh

from pbcs_jax import progress
from pbcs_jax.choices import Samples
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError, check_known, check_number, check_switch
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.nets.backend import platform
from pbcs_jax.objectives import kernel_rows
from pbcs_jax.objectives import ridge as ridge_lib
from pbcs_jax.objectives import ridge_solution as solution
from pbcs_jax.objectives.embeddings import embed
from pbcs_jax.objectives.exchange import Learner, Outer, exchange_samples
from pbcs_jax.outer import masks
from pbcs_jax.outer.base import Built, Evaluation, Objective
from pbcs_jax.outer.settings import Settings

# Up to so many numbers the products of all embeddings are kept; beyond, they are made when needed.
LARGEST_GRAM = 1 << 27
# Up to this K the policy gradient is affordable.
SMALL_SIZE = 200


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Masks over samples are judged by ridge regression on fixed embeddings.

    Attributes:
      embeddings: a name, see `embeddings.make`; or `[n, d]` numbers of your own; or, with
        validation data, a pair of such arrays for the candidates and the validation data.
      ridge: relative to the mean squared length of the embeddings; 0 chooses, see
        `ridge.choose_ridge`.
      outer_loss: 'squared_error' (of one-hot targets), 'brier', 'cross_entropy', 'error_rate', or a
        function of (outputs, targets).
      candidate_weight: the candidates' own mean loss counts this much beside the validation's, for
        the chosen ones by leave-one-out, each class as much as in the validation set. It keeps a
        small validation set from being over-fitted, even if half of the labels are wrong; choose it
        where K is larger than that set.
      candidate_loss: what that is the mean of; 'auto' is 'absolute_error' for classes, which wrong
        labels do not lead astray, and the outer loss for regression.
      exchanges: at the end so many chosen samples at most are exchanged for better ones, see
        `exchange.py`. For clean data; they would fit few validation data, or wrong labels, too
        well.
      loss_fn: 'squared_error' where the targets are numbers, even if all of them are whole; 'auto'
        tells numbers from classes.
      scale: whether tables are standardised, see `border.check_data`.
    """

    embeddings: Any = "auto"
    ridge: float = 0.0
    outer_loss: str | losses.LossFn = "squared_error"
    candidate_weight: float = 0.0
    candidate_loss: str | losses.LossFn = "auto"
    exchanges: int = 0
    loss_fn: str = "auto"
    scale: bool = True

    def __post_init__(self):
        for name in ("ridge", "candidate_weight"):
            check_number(f"kernel.{name}", getattr(self, name), least=0)
        check_number("kernel.exchanges", self.exchanges, least=0, whole=True)
        check_switch("scale", self.scale)
        if self.embeddings is None or isinstance(self.embeddings, int | float):
            raise UserError(
                f"embeddings is {self.embeddings!r}: use a name, [n, d] numbers, or a pair of them"
            )
        check_known("loss_fn", self.loss_fn, ridge_lib.LOSS_FNS, ": ridge regression has no other")
        losses.check(self.outer_loss, self.candidate_loss)
        if self.exchanges and self.candidate_weight:
            raise UserError(
                f"kernel.exchanges is {self.exchanges} and kernel.candidate_weight "
                f"{self.candidate_weight}: exchanges have no weight of candidates; set one to 0"
            )

    def loop_settings(self, n: int, size: int, estimator: Any = None) -> Settings:
        """The outer loop's settings for n candidates, where the user sets none.

        Large coresets take the exact differences that candidates make, where there are any: one
        mask then tells more than hundreds tell the policy gradient. Else the policy gradient alone
        gives the best coresets where it is affordable: what one mask reveals about one candidate
        falls as n grows. With many, the pathwise gradient, which covers all of them at once, leads.

        Args:
          n: number of candidates.
          size: K.
          estimator: the user's own, or None.
        """
        known = losses.get(self.outer_loss) is losses.squared_error and not self.candidate_weight
        if estimator == "differences" or (estimator is None and known and size > SMALL_SIZE):
            many = n > 200_000
            return Settings(
                num_masks=1,
                outer_steps=100 if many else 200,
                learning_rate=0.1 if many else 0.05,
                estimator="differences",
            )
        if n <= 5000:
            return Settings(num_masks=32, outer_steps=400, learning_rate=0.05, path_until=0.5)
        return Settings(
            num_masks=8, outer_steps=100, learning_rate=0.1, estimator="hybrid", path_until=0.5
        )

    def build(
        self, key, x, y, model, size, validation, choice: Samples, settings: Settings, compute
    ) -> Built:
        """The objective of these data, and the exchanges that end the selection, if any."""
        embedding_key, ridge_key = jax.random.split(key)
        progress.stage("Embedding")
        rows = embed(self.embeddings, embedding_key, x, y, model, size, validation)
        outer = None if validation is None else (rows[1], validation[1])
        progress.stage("Choosing the ridge")
        ridge = self.ridge or ridge_lib.choose_ridge(ridge_key, rows[0], y, size, outer)
        evaluate = kernel_objective(
            rows[0],
            y,
            dataclasses.replace(self, ridge=ridge),
            capacity=choice.levels[-1],
            validation=outer,
            path=settings.gradient_estimator().needs_path,
            differences=settings.gradient_estimator().needs_differences,
            compute=compute,
        )
        outputs = lambda key, chosen: predict(rows[0], y, chosen, ridge)  # noqa: E731
        if not self.exchanges:
            return Built(evaluate, predict=outputs)
        if len(y) * len(rows[-1]) > LARGEST_GRAM:
            raise UserError(
                f"kernel.exchanges is {self.exchanges}, for candidates (here {len(y)}) times outer "
                f"data up to {LARGEST_GRAM}: use 0, or fewer candidates"
            )
        labels = jnp.asarray(y) if outer is None else jnp.concatenate([y, outer[1]])
        targets, m = ridge_lib.encode(labels), len(rows[-1])
        weights = jnp.full((m,), 1 / m, jnp.float32)
        learner = Learner(rows[0], rows[-1], ridge)
        free = jnp.ones(len(y), bool), jnp.zeros(len(y), int)
        data = Outer(targets[: len(y)], targets[-m:], weights, *free)
        improve = lambda key, chosen: exchange_samples((learner,), data, chosen, self.exchanges)[0]  # noqa: E731
        return Built(evaluate, improve, outputs)


class Data(NamedTuple):
    """What all masks see where products of all embeddings are kept: n candidates, then v others.

    Attributes:
      rows: the Gram matrix `[n, n + v]`, its rows of the candidates.
      targets: `[c, n + v]`.
      classes: `[n + v]` integers, or the targets of a regression once more.
      weights: `[n + v]`, of the outer loss; they add up to 1.
    """

    rows: jax.Array
    targets: jax.Array
    classes: jax.Array
    weights: jax.Array


def kernel_objective(
    embeddings: jax.Array,
    y: jax.Array,
    settings: Kernel,
    *,
    capacity: int,
    validation: tuple[jax.Array, jax.Array] | None = None,
    path: bool = False,
    differences: bool = False,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
    weights: jax.Array | None = None,
    num_classes: int = 0,
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` that solves M ridge regressions.

    Args:
      embeddings: `[n, d]` of the candidates, from `embeddings.normalise`.
      y: `[n]` integer classes, or `[n]` or `[n, c]` regression targets.
      settings: losses, and a ridge above 0.
      capacity: rows that a coreset has at most, see `masks.capacities`.
      validation: `(embeddings [v, d], y)`, held-out outer data; the candidates themselves if None.
      path: whether to give dL/dm.
      differences: whether to give what each candidate changes; for masks of 0 and 1.
      compute: devices and chunks; of CPU devices one only, see `mesh.solver_mesh`.
      weights: `[n]`, how many samples each candidate stands for in the outer loss; 1 if None.
      num_classes: to be given within `jit`; 0 counts them.
    """
    ridge, candidate_weight = settings.ridge, settings.candidate_weight
    are_classes = is_classes(y)
    loss_fn = ridge_lib.outer_loss_of(settings.outer_loss, y, path)
    candidate_loss_fn = losses.absolute_error if are_classes else loss_fn
    if settings.candidate_loss != "auto":
        candidate_loss_fn = losses.get(settings.candidate_loss)
    check_number("kernel.ridge", ridge, least=0, above=True)
    n = len(y)
    if differences and (
        loss_fn is not losses.squared_error or (candidate_weight > 0 and validation is not None)
    ):
        raise UserError(
            "the estimator 'differences' is for the outer loss 'squared_error' and a "
            "candidate_weight of 0: use 'hybrid'"
        )
    wanted = kernel_rows.Wanted(
        ridge=ridge,
        loss_fn=loss_fn,
        candidate_loss_fn=candidate_loss_fn,
        are_classes=are_classes,
        counted=candidate_weight > 0 or validation is None,
        # Beside validation data the candidates guard against fitting these too well. A wrong label
        # must not be chosen for its own sake, so the chosen ones are judged by leave-one-out.
        guarded=candidate_weight > 0 and validation is not None,
        path=path,
        differences=differences,
    )
    mesh = compute.mesh or mesh_lib.solver_mesh()
    chunk = compute.mask_chunk
    # Embeddings of fewer numbers than rows have singular products: the primal form is exact there.
    dual = embeddings.shape[1] >= capacity and not differences
    v = 0 if validation is None else len(validation[1])
    if not (dual and n * (n + v) <= LARGEST_GRAM):
        sides = _sides(embeddings, y, validation, candidate_weight, weights, num_classes)
        if differences:
            outer = sides.candidates if sides.held_out is None else sides.held_out
            sides = sides._replace(root=_root(outer.rows, outer.weights))
        # Embeddings are read once for a whole group of masks.
        return _by_rows(kernel_rows.place(sides, mesh), wanted, mesh, chunk or 8, capacity)
    data = gather(
        embeddings, y, validation, candidate_weight, weights=weights, num_classes=num_classes
    )
    data = mesh_lib.replicate(data, mesh)
    # Rows of a Gram matrix are a mask's own, and on CPU those of one stay in the cache.
    chunk = chunk or (1 if platform() == "cpu" else 8)

    # Outputs and targets are [c, n + v] here: short rows are slow to go through on CPU.
    def per_example(loss_fn, outputs, data):
        if loss_fn is losses.squared_error:
            return jnp.sum((outputs - data.targets) ** 2, axis=0)
        return loss_fn(outputs.T * ridge_lib.LOGIT_SCALE, data.classes)

    def outer_of(outputs, data):
        values = per_example(loss_fn, outputs, data)
        if wanted.guarded and candidate_loss_fn is not loss_fn:
            candidates = per_example(candidate_loss_fn, outputs, data)
            values = jnp.where(jnp.arange(n + v) < n, candidates, values)
        return data.weights @ values

    def evaluate_one(data, mapped):
        indices, weights = mapped
        found = _solve_gram(data, n, indices, jnp.sqrt(weights), ridge)
        outputs = found.outputs
        place = jnp.where(weights > 0, indices, n + v)  # beyond the end: padding is dropped
        if wanted.guarded:
            outputs = outputs.at[:, place].set(found.alone(), mode="drop")
        loss, pull = jax.vjp(lambda outputs: outer_of(outputs, data), outputs)
        metrics = {}
        if are_classes:
            best = jnp.max(outputs, axis=0)
            own = jnp.sum(jnp.where(data.targets > 0, outputs, 0), axis=0)
            right = (own == best) & (best > jnp.min(outputs, axis=0))  # all alike is no answer
            counts = data.weights > 0
            metrics["outer_accuracy"] = jnp.sum(counts & right) / jnp.sum(counts)
        ok = jnp.isfinite(loss)
        if not path:
            return loss, metrics, ok, None
        (slope,) = pull(jnp.ones_like(loss))
        if wanted.guarded:
            slope = slope.at[:, place].set(0, mode="drop")
        missing = data.targets[:, :n] - outputs[:, :n]
        return loss, metrics, ok, jnp.sum(found.products(slope) * missing, axis=0)

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, chunk)

    def evaluate(data: Data, key: jax.Array, all_masks: jax.Array) -> Evaluation:
        packed = masks.pack_masks(all_masks, capacity)
        values, metrics, ok, paths = mapped_over_masks(data, (packed.indices, packed.weights))
        return Evaluation(values, ok, paths, packed.masks, metrics)

    return jax.tree_util.Partial(evaluate, data)


def _by_rows(
    data: kernel_rows.Spread, wanted: kernel_rows.Wanted, mesh: Mesh, chunk: int, capacity: int
) -> Objective:
    """The objective from embeddings alone."""

    def evaluate(data: kernel_rows.Spread, key: jax.Array, all_masks: jax.Array) -> Evaluation:
        n = all_masks.shape[1]
        packed = masks.pack_masks(all_masks, capacity)
        keys = jax.random.split(key, len(all_masks)) if wanted.differences else None
        judge = kernel_rows.judge(wanted, mesh, chunk, n)
        found = judge(data, packed.indices, packed.weights, keys)
        metrics = {}
        if wanted.are_classes:
            metrics["outer_accuracy"] = found.right / found.counted
        ok = jnp.isfinite(found.losses)
        return Evaluation(found.losses, ok, found.paths, packed.masks, metrics, found.differences)

    return jax.tree_util.Partial(evaluate, data)


def _outer(
    y: jax.Array,
    validation: tuple[jax.Array, jax.Array] | None,
    candidate_weight: float,
    weights: jax.Array | None,
    num_classes: int,
) -> tuple[jax.Array, jax.Array]:
    """Targets `[n + v]` as given, and the weights `[n + v]` of the outer loss."""
    y = jnp.asarray(y)
    n, labels = len(y), [y]
    if validation is not None:
        labels.append(jnp.asarray(validation[1]).astype(y.dtype))
    classes = jnp.concatenate(labels)
    v = len(classes) - n
    share = candidate_weight / (1 + candidate_weight) if v else 1.0
    own = jnp.full((n,), 1 / n, jnp.float32)
    if v:
        own = ridge_lib.like_validation(labels[0], labels[1], num_classes)
    if weights is not None:
        own = own * weights / jnp.sum(own * weights)
    if v:
        own = jnp.concatenate([share * own, jnp.full((v,), (1 - share) / v, jnp.float32)])
    return classes, own


def _sides(embeddings, y, validation, candidate_weight, weights, num_classes) -> kernel_rows.Spread:
    """Candidates and validation data apart: together they would be a copy of the embeddings."""
    classes, own = _outer(y, validation, candidate_weight, weights, num_classes)
    targets, n = ridge_lib.encode(classes, num_classes).T, len(y)
    side = kernel_rows.Side
    candidates = side(jnp.asarray(embeddings), targets[:, :n], classes[:n], own[:n])
    if validation is None:
        return kernel_rows.Spread(candidates, None, None)
    held_out = side(jnp.asarray(validation[0]), targets[:, n:], classes[n:], own[n:])
    return kernel_rows.Spread(candidates, held_out, None)


def gather(
    embeddings: jax.Array,
    y: jax.Array,
    validation: tuple[jax.Array, jax.Array] | None,
    candidate_weight: float,
    weights: jax.Array | None = None,
    num_classes: int = 0,
) -> Data:
    """The data of an objective with a Gram matrix; the rest is as in `kernel_objective`."""
    rows = [jnp.asarray(embeddings)]
    if validation is not None:
        rows.append(jnp.asarray(validation[0]))
    # Concatenation copies, even one array alone.
    everything = jnp.concatenate(rows) if len(rows) > 1 else rows[0]
    gram = jax.jit(lambda a, b: a @ b.T)(everything[: len(y)], everything)
    classes, own = _outer(y, validation, candidate_weight, weights, num_classes)
    return Data(gram, ridge_lib.encode(classes, num_classes).T, classes, own)


def predict(embeddings: jax.Array, y: jax.Array, chosen: np.ndarray, ridge: float) -> np.ndarray:
    """Outputs for all samples of the regression on the chosen ones, for these by leave-one-out.

    Args:
      embeddings: `[n, d]`.
      y: `[n]` classes, or `[n, ...]` numbers.
      chosen: `[K]` indices.
      ridge: above 0.

    Returns:
      `[n, C]` probabilities of classes, or outputs of the shape of `y`.
    """

    @jax.jit
    def outputs_of(rows, targets):
        factor = ridge_lib.factor(rows[chosen] @ rows[chosen].T, ridge)
        dual = cho_solve(factor, targets[chosen])
        alone = targets[chosen] - dual / solution.inverse_diagonal(factor)[:, None]
        return (rows @ (rows[chosen].T @ dual)).at[chosen].set(alone)

    outputs = outputs_of(jnp.asarray(embeddings), ridge_lib.encode(jnp.asarray(y)))
    if is_classes(y):
        return np.asarray(jax.nn.softmax(outputs * ridge_lib.LOGIT_SCALE))
    return np.asarray(outputs).reshape(np.shape(y))


class _Solution(NamedTuple):
    """A mask's regression.

    Attributes:
      outputs: `[c, n + v]`.
      products: turns dL/doutputs into (phi_i A^-1 G)' for all candidates.
      alone: gives the chosen ones' outputs `[c, capacity]`, each without itself,
        t - [C^-1 t]_i / C^-1_ii.
    """

    outputs: jax.Array
    products: Callable[[jax.Array], jax.Array]
    alone: Callable[[], jax.Array]


def _solve_gram(data, n, indices, root, ridge) -> _Solution:
    """From products of all embeddings."""
    # Indices come from `pack_masks`: checking them again takes as long as the copy.
    chosen = data.rows.at[indices].get(mode="promise_in_bounds")  # [capacity, n + v]
    factor = ridge_lib.factor(chosen[:, indices] * root[:, None] * root, ridge)
    targets = data.targets.T[indices] * root[:, None]
    dual = cho_solve(factor, targets)
    outputs = (dual * root[:, None]).T @ chosen

    def products(slope):
        inner = cho_solve(factor, (chosen @ slope.T) * root[:, None])
        inside = (inner * root[:, None]).T @ chosen[:, :n]
        return (slope @ data.rows.T - inside) / ridge

    alone = lambda: solution.left_out(targets, dual, solution.inverse_diagonal(factor), root)  # noqa: E731
    return _Solution(outputs, products, alone)


@jax.jit
def _root(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """R `[d, d]` with R R' = rows' diag(weights) rows, the second moments of the outer data."""
    n, d = rows.shape
    chunk = min(n, 8192)

    def add(i, total):
        # The last piece overlaps the one before it, where its weights are 0.
        start = jnp.minimum(i * chunk, n - chunk)
        some = jax.lax.dynamic_slice(rows, (start, 0), (chunk, d))
        own = jax.lax.dynamic_slice(weights, (start,), (chunk,))
        own = jnp.where(start + jnp.arange(chunk) >= i * chunk, own, 0).astype(rows.dtype)
        return total + some.T @ (some * own[:, None])

    # In pieces: all rows times their weights would be a second copy of them.
    moments = jax.lax.fori_loop(0, -(-n // chunk), add, jnp.zeros((d, d), rows.dtype))
    return jnp.tril(ridge_lib.factor(moments, 0.0)[0])
