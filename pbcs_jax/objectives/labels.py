"""Which labels to believe: what all other samples make of each one, by ridge regression.

A ridge regression on all samples averages over wrong labels, as long as the right ones agree with
each other. Its output for a sample, left out in closed form, is a vote on the label that the sample
has. Samples whose label is outvoted leave, and the rest votes again. Trusted samples count as much
more than the others as makes them predict each other best: the worse the other labels, the more.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.objectives import ridge as ridge_lib

ROUNDS = 3
MOST_VOTERS = 6000
"""More samples are voted on, but do not vote."""
_RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 7))
_TRIED = 1000  # samples that the ridge is chosen on
_LARGEST_WEIGHT = 10.0
_TRUSTS = (1.0, 4.0, 16.0, 64.0, 256.0)
"""How much more than another a trusted sample may count."""
_CHUNK = 2048


class Votes(NamedTuple):
    """What all other samples make of each.

    Attributes:
      outputs: `[n, c]`, in the units of the targets: near 1 - 1/c for the class voted for.
      margins: `[n]`, of classes the output of the sample's own label less the largest other one; of
        regressions the negative distance of the target, in standard deviations of all distances.
      kept: `[n]` bool, whose label is not outvoted.
    """

    outputs: np.ndarray
    margins: np.ndarray
    kept: np.ndarray


def vote(key: jax.Array, views: Sequence[Any], y: np.ndarray, trusted: int = 0) -> Votes:
    """Lets samples vote on each other's labels.

    Args:
      key: PRNG key, consumed.
      views: pairs of embeddings `[n + trusted, d]` and the width of their kernel, see
        `ridge.products`; the outputs are averaged over them.
      y: `[n + trusted]` classes or `[n + trusted, ...]` numbers, the trusted samples last.
      trusted: how many samples are right for certain and never leave.

    Returns:
      `Votes` for all of them.
    """
    total = len(y)
    n = total - trusted
    targets = ridge_lib.encode(jnp.asarray(y))
    weights = np.ones(total, np.float32)
    if is_classes(y):  # a class that has few samples is heard as one that has many
        weights = 1 / np.bincount(y)[np.asarray(y)]
        weights = np.minimum(weights / weights.mean(), _LARGEST_WEIGHT).astype(np.float32)
    order = np.asarray(jax.random.permutation(key, total))
    # Trusted samples vote in any case.
    order = np.concatenate([order[order >= n], order[order < n]])
    voters, tried = np.sort(order[:MOST_VOTERS]), order[::-1][:_TRIED]
    tried = np.sort(np.flatnonzero(np.isin(voters, tried)))
    tried = tried if len(tried) > 1 else np.arange(len(voters))
    trusts = [1.0] * len(views)
    if trusted > 1:
        some = np.union1d(order[: trusted + _TRIED], np.arange(n, total))
        trusts = [_trust(view, targets, jnp.asarray(weights), some, n) for view in views]
    kept = np.ones(total, bool)
    for _ in range(ROUNDS):
        outputs = 0.0
        for (rows, width), trust in zip(views, trusts, strict=True):
            own = np.where(np.arange(total) < n, 1, trust) * weights * kept
            root = jnp.asarray(np.sqrt(own / own.mean())[voters], jnp.float32)
            found, explained = _regress(jnp.asarray(rows), width, targets, voters, root, tried)
            outputs = outputs + found * jnp.maximum(explained, 0.01)
        margins = np.array(_margins(outputs, targets, y))  # of the trusted ones too
        kept = margins > (0 if is_classes(y) else -3.0)
        kept[n:] = True
    return Votes(np.asarray(outputs), margins, kept)


def _margins(outputs: jax.Array, targets: jax.Array, y: np.ndarray) -> jax.Array:
    if is_classes(y):
        own = targets > 0
        others = jnp.max(jnp.where(own, -jnp.inf, outputs), axis=1)
        return jnp.sum(jnp.where(own, outputs, 0), axis=1) - others
    distance = jnp.linalg.norm(outputs - targets, axis=1)
    return -distance / jnp.maximum(1.4826 * jnp.median(distance), 1e-12)


def _trust(view: Any, targets, weights, some: np.ndarray, n: int) -> float:
    """How much more the trusted samples, those from `n` on, count, by how well they are told."""
    rows, width = view
    part, labels = jnp.asarray(rows)[some], targets[some]
    is_trusted = some >= n
    everyone = np.arange(len(some))
    errors = []
    for trust in _TRUSTS:
        own = weights[some] * jnp.where(is_trusted, trust, 1)
        root = jnp.sqrt(own / own.mean())
        alone, _ = _regress(part, width, labels, everyone, root, everyone)
        error = jnp.sum((alone - labels) ** 2, axis=1)
        errors.append(float(jnp.average(error[is_trusted], weights=weights[some][is_trusted])))
    return _TRUSTS[int(np.argmin(errors))]


@jax.jit
def _regress(rows, width, targets, voters, root, tried):
    """Outputs `[n, c]`, of the voters without themselves, and the share that they explain."""
    some, own = rows[voters], targets[voters] * root[:, None]
    gram = ridge_lib.products(some, some, width) * root[:, None] * root
    grid = jnp.asarray(_RIDGES, gram.dtype)
    floor = 4 * jnp.finfo(jnp.float32).eps
    errors = ridge_lib.errors_by_ridge(gram[tried][:, tried], own[tried], grid, floor)
    factor = ridge_lib.factor(gram, grid[jnp.argmin(errors)])
    dual = cho_solve(factor, own)
    free = jnp.sum(ridge_lib.inverse_root(factor) ** 2, axis=0)
    alone = targets[voters] - dual / (free * jnp.maximum(root, 1e-6))[:, None]
    dual = dual * root[:, None]
    outputs = in_chunks(lambda part: ridge_lib.products(part, some, width) @ dual, rows, _CHUNK)
    outputs = outputs.at[voters].set(jnp.where(root[:, None] > 0, alone, outputs[voters]))
    missing = jnp.sum((root[:, None] * (alone - targets[voters])) ** 2)
    return outputs, 1 - missing / jnp.maximum(jnp.sum(own**2), 1e-12)
