"""The kernel objective from embeddings alone: in pieces of rows, and each device with its own rows.

Where the products of all embeddings are too many to keep, or the primal form is smaller. Per group
of masks all rows are gone through once, and once more for what one more unit of each candidate
changes. Pieces stay in the cache, and nothing of the size of the candidates times the classes is
stored. Over devices and processes the candidates are spread: each device adds up what its own rows
give. They exchange the chosen rows, then one sum per group of masks, and the path gradients.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pbcs_jax import processes
from pbcs_jax.compute.mesh import AXIS
from pbcs_jax.inner import losses
from pbcs_jax.nets.backend import platform
from pbcs_jax.objectives import ridge as ridge_lib
from pbcs_jax.objectives import ridge_solution as solution

# Rows at once: on CPU so many that they stay in the cache.
PIECE, PIECE_ELSEWHERE = 2048, 1 << 16
# Outputs of a piece at most, of all masks of a group.
LARGEST_OUTPUTS = 1 << 24


class Side(NamedTuple):
    """Candidates or validation examples; on each device, its own of them.

    Attributes:
      rows: `[n, d]` embeddings.
      targets: `[c, n]`.
      classes: `[n]` integers, or the targets of a regression once more.
      weights: `[n]`, of the outer loss.
    """

    rows: jax.Array
    targets: jax.Array
    classes: jax.Array
    weights: jax.Array


class Spread(NamedTuple):
    """What the masks see; `root [d, d]` is R with R R' the second moments of the outer data."""

    candidates: Side
    held_out: Side | None
    root: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is asked of the masks.

    Attributes:
      ridge: above 0.
      loss_fn: of the held-out data, or of the candidates where there are none.
      candidate_loss_fn: of the candidates beside held-out data.
      are_classes: whether there is an accuracy.
      counted: whether the candidates' own loss counts.
      guarded: whether the chosen ones are judged without themselves.
      path: whether path gradients are wanted.
      differences: whether differences are.
    """

    ridge: float
    loss_fn: losses.LossFn
    candidate_loss_fn: losses.LossFn
    are_classes: bool
    counted: bool
    guarded: bool
    path: bool
    differences: bool


class Found(NamedTuple):
    """Of each mask: the loss, what counts for its accuracy, and `[M, n]` numbers or None."""

    losses: jax.Array
    right: jax.Array
    counted: jax.Array
    paths: jax.Array | None
    differences: jax.Array | None


def place(data: Spread, mesh: Mesh) -> Spread:
    """The rows of both sides spread over the mesh, filled up with rows that count for nothing."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    held_out = None if data.held_out is None else _spread(data.held_out, mesh)
    root = None if data.root is None else processes.place(data.root, everywhere)
    return Spread(_spread(data.candidates, mesh), held_out, root)


def _spread(side: Side, mesh: Mesh) -> Side:
    specs = _specs(side)
    return Side(
        *(
            _spread_one(array, NamedSharding(mesh, spec), spec.index(AXIS))
            for array, spec in zip(side, specs, strict=True)
        )
    )


def _specs(side: Any) -> Any:
    """How the arrays of a side are spread."""
    first, second = PartitionSpec(AXIS), PartitionSpec(None, AXIS)
    return None if side is None else Side(first, second, first, first)


def _spread_one(array: jax.Array, sharding: NamedSharding, axis: int) -> jax.Array:
    fill = -array.shape[axis] % sharding.mesh.size
    if sharding.is_fully_addressable:
        if fill:
            array = jnp.pad(array, [(0, fill * (i == axis)) for i in range(array.ndim)])
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    shape = tuple(size + fill * (i == axis) for i, size in enumerate(host.shape))

    def own(index: tuple[slice, ...]) -> np.ndarray:
        some = host[index]
        wanted = len(range(*index[axis].indices(shape[axis])))
        missing = [(0, (wanted - some.shape[axis]) * (i == axis)) for i in range(host.ndim)]
        return np.pad(some, missing) if any(last for _, last in missing) else some

    return jax.make_array_from_callback(shape, sharding, own)


def judge(
    wanted: Wanted, mesh: Mesh, chunk: int, n: int
) -> Callable[[Spread, jax.Array, jax.Array, Any], Found]:
    """`(data, indices [M, capacity], weights [M, capacity], keys [M]) -> Found` of all masks.

    Args:
      wanted: what is asked.
      mesh: whose devices have the rows.
      chunk: masks that are worked on together.
      n: candidates.
    """

    def on_one_device(data, indices, weights, keys):
        one = partial(_group, data, wanted, mesh.size)
        number = len(indices)
        fill = -number % min(chunk, number)
        groups = jax.tree.map(
            lambda a: (jnp.concatenate([a, a[:fill]]) if fill else a).reshape(
                -1, min(chunk, number), *a.shape[1:]
            ),
            (indices, weights, keys),
        )
        found = jax.lax.map(lambda group: one(*group), groups)
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:number], found)

    def judged(data, indices, weights, keys):
        if mesh.size == 1:
            return on_one_device(data, indices, weights, keys)
        everywhere = PartitionSpec()
        sides = Spread(_specs(data.candidates), _specs(data.held_out), everywhere)
        found = jax.shard_map(
            on_one_device,
            mesh=mesh,
            in_specs=(sides, everywhere, everywhere, everywhere),
            out_specs=everywhere,
            check_vma=False,
        )(data, indices, weights, keys)
        # With rows that only fill up, where devices do not divide the candidates.
        cut = lambda a: None if a is None else a[:, :n]  # noqa: E731
        return found._replace(paths=cut(found.paths), differences=cut(found.differences))

    return judged


def _group(data: Spread, wanted: Wanted, devices: int, indices, weights, keys) -> Found:
    """Some masks, of which all devices see all, with the rows that this one has."""
    spans = devices > 1
    candidates, own_count = data.candidates, len(data.candidates.rows)
    offset = jax.lax.axis_index(AXIS) * own_count if spans else 0
    m, c = len(indices), len(candidates.targets)

    def total(tree):
        """Sums over all devices, in one exchange."""
        if not spans:
            return tree
        flat, unravel = ravel_pytree(tree)
        return unravel(jax.lax.psum(flat, AXIS))

    local = indices - offset  # [m, capacity]
    if spans:
        mine = (local >= 0) & (local < own_count)
        at = jnp.clip(local, 0, own_count - 1)
        taken = total(
            (
                jnp.where(mine[..., None], candidates.rows[at], 0),
                jnp.where(mine[..., None], candidates.targets.T[at], 0),
            )
        )
    else:
        taken = candidates.rows[local], candidates.targets.T[local]
    solved = jax.vmap(partial(solution.solve, ridge=wanted.ridge))(*taken, weights)
    alone = (
        jax.vmap(partial(solution.alone, ridge=wanted.ridge))(solved) if wanted.guarded else None
    )
    local = jnp.where(weights > 0, local, -1)  # padding is nowhere
    by_mask = jnp.swapaxes(solved.model, 1, 2).reshape(m * c, -1)  # [m c, d]

    def outputs_of(piece, start):
        outputs = (by_mask @ piece.rows.T).reshape(m, c, -1)
        return _put(outputs, local - start, alone) if alone is not None else outputs

    def add(side, loss_fn, is_guarded, sums):
        def one(i, sums):
            piece, start = _cut(side, i, m * c)
            outputs = outputs_of(piece, start) if is_guarded else (by_mask @ piece.rows.T)
            outputs = outputs.reshape(m, c, -1)
            loss, pull = jax.vjp(jax.vmap(partial(_loss, loss_fn, piece)), outputs)
            more = [loss, *(_accuracy(piece, outputs) if wanted.are_classes else (loss, loss))]
            if wanted.path or wanted.differences:
                (slope,) = pull(jnp.ones_like(loss))
                if is_guarded:
                    slope = _put(slope, local - start, jnp.zeros((m, c, local.shape[1])))
                more.append(slope.reshape(m * c, -1) @ piece.rows)
            return [a + b for a, b in zip(sums, more, strict=True)]

        return jax.lax.fori_loop(0, _pieces(side, m * c), one, sums)

    zero = jnp.zeros((m,), by_mask.dtype)
    sums = [zero, zero, zero] + [jnp.zeros_like(by_mask)] * (wanted.path or wanted.differences)
    if wanted.counted:
        beside = data.held_out is not None
        loss_fn = wanted.candidate_loss_fn if beside else wanted.loss_fn
        sums = add(candidates, loss_fn, wanted.guarded, sums)
    if data.held_out is not None:
        sums = add(data.held_out, wanted.loss_fn, False, sums)
    loss, right, counted, *pulls = total(sums)
    found = Found(loss, right, counted, None, None)
    if not pulls:
        return found
    columns = jnp.swapaxes(pulls[0].reshape(m, c, -1), 1, 2)  # [m, d, c]
    if wanted.differences:
        columns = jax.vmap(partial(solution.with_sketches, data.root, ridge=wanted.ridge))(
            keys, solved, columns
        )
    columns = jax.vmap(partial(solution.inverse, ridge=wanted.ridge))(solved, columns)
    flat = jnp.swapaxes(columns, 1, 2).reshape(-1, by_mask.shape[1])

    def look(i, made):
        piece, start = _cut(candidates, i, len(flat))
        along = (flat @ piece.rows.T).reshape(m, -1, piece.rows.shape[0])
        missing = piece.targets - outputs_of(piece, start)
        new = _changes(wanted, along, missing)
        return [
            jax.lax.dynamic_update_slice(all_, piece, (0, start))
            for all_, piece in zip(made, new, strict=True)
        ]

    made = [jnp.zeros((m, own_count), by_mask.dtype)] * (wanted.path + wanted.differences)
    made = jax.lax.fori_loop(0, _pieces(candidates, len(flat)), look, made)
    if wanted.differences:
        removed = jax.vmap(partial(solution.removed, ridge=wanted.ridge))(solved, *taken, columns)
        made[-1] = _put(made[-1][:, None], local, removed[:, None])[:, 0]
    if spans:
        made = [jax.lax.all_gather(a, AXIS, axis=1, tiled=True) for a in made]
    paths = made[0] if wanted.path else None
    return found._replace(paths=paths, differences=made[-1] if wanted.differences else None)


def _pieces(side: Side, columns: int) -> int:
    return -(-len(side.rows) // _length(side, columns))


def _length(side: Side, columns: int) -> int:
    """Rows of a piece."""
    most = PIECE if platform() == "cpu" else PIECE_ELSEWHERE
    return min(len(side.rows), max(64, min(most, LARGEST_OUTPUTS // columns)))


def _cut(side: Side, i: jax.Array, columns: int) -> tuple[Side, jax.Array]:
    """A piece, and its first row. The last one overlaps the one before it, where it weighs 0."""
    length = _length(side, columns)
    start = jnp.minimum(i * length, len(side.rows) - length)
    piece = Side(
        *(
            jax.lax.dynamic_slice_in_dim(array, start, length, spec.index(AXIS))
            for array, spec in zip(side, _specs(side), strict=True)
        )
    )
    is_new = start + jnp.arange(length) >= i * length
    return piece._replace(weights=jnp.where(is_new, piece.weights, 0)), start


def _put(values: jax.Array, at: jax.Array, new: jax.Array) -> jax.Array:
    """`values [m, c, r]` with `new [m, c, k]` at the places `at [m, k]` that are in 0..r-1."""
    at = jnp.where(at < 0, values.shape[-1], at)
    return jax.vmap(lambda v, a, n: v.at[:, a].set(n, mode="drop"))(values, at, new)


def _loss(loss_fn: losses.LossFn, piece: Side, outputs: jax.Array) -> jax.Array:
    """The part of the outer loss of outputs `[c, r]`."""
    if loss_fn is losses.squared_error:
        return piece.weights @ jnp.sum((outputs - piece.targets) ** 2, axis=0)
    return piece.weights @ loss_fn(outputs.T * ridge_lib.LOGIT_SCALE, piece.classes)


def _accuracy(piece: Side, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many are right of outputs `[m, c, r]`, and of how many."""
    best = jnp.max(outputs, axis=1)
    own = jnp.sum(jnp.where(piece.targets > 0, outputs, 0), axis=1)
    right = (own == best) & (best > jnp.min(outputs, axis=1))  # all alike is no answer
    counts = piece.weights > 0
    right = jnp.sum(counts & right, axis=1).astype(outputs.dtype)
    return right, jnp.broadcast_to(jnp.sum(counts), right.shape).astype(outputs.dtype)


def _changes(wanted: Wanted, along: jax.Array, missing: jax.Array) -> list[jax.Array]:
    """`[m, r]` path gradients, and what candidates that are not chosen would change."""
    paths = jnp.sum(along[:, : missing.shape[1]] * missing, axis=1)
    if not wanted.differences:
        return [paths]
    q, h = solution.lengths(along, missing)
    return [*[paths] * wanted.path, paths / (1 + h) + q / (1 + h) ** 2]
