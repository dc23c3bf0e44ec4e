"""The views of the data that regressions of the portfolio look at.

gauss     a Gaussian kernel of the standardised inputs
linear    of tables: these inputs
patches   of pictures
tangents  of networks that were trained on K random candidates
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.objectives import embeddings
from pbcs_jax.portfolio.facts import Data, Facts

WIDTH = 0.3
"""Of the Gaussian kernel, as a share of the median squared distance."""
TANGENTS = 1024
"""Numbers that the gradient of one network is sketched to."""


class View(NamedTuple):
    """One way to look at samples.

    Attributes:
      rows: embeddings `[n, d]` of the candidates.
      outer: `[m + v, d]` of the outer data.
      width: of a Gaussian kernel, see `ridge.products`; None for the linear one.
    """

    rows: jax.Array
    outer: jax.Array
    width: float | None = None


def plain_views(key: jax.Array, data: Data, facts: Facts) -> dict[str, View]:
    """Views that need no network."""
    rows = [data.x, data.x[data.outer]]
    if data.validation is not None:
        rows[1] = np.concatenate([rows[1], np.asarray(data.validation[0], rows[1].dtype)])
    flat = [part.reshape(len(part), -1) for part in rows]
    mean, std = flat[0].mean(0), flat[0].std(0)
    std = np.where(std > 1e-6 * max(float(std.max()), 1e-12), std, 1)
    own, outer = embeddings.normalise(*(jnp.asarray((a - mean) / std) for a in flat))
    views = {"gauss": View(own, outer, _width(own))}
    if not facts.pictures:
        views["linear"] = View(own, outer)
    else:
        found = embeddings.make("patches", key, jnp.asarray(rows[0]), data.y, None, rows[1:], 0)
        views["patches"] = View(*embeddings.normalise(*found))
    return views


def _width(rows: jax.Array) -> float:
    """Of a Gaussian kernel: that share of the median squared distance."""
    some = rows[:1000]
    lengths = jnp.sum(some**2, axis=1)
    squares = lengths[:, None] + lengths - 2 * some @ some.T
    return WIDTH * float(jnp.median(squares)) or 1.0


def tangent_view(
    key: jax.Array, data: Data, model: Any, size: int, networks: int, kept: np.ndarray
) -> View:
    """The tangent kernel of networks that were trained on random coresets of what is kept."""
    groups = data.groups
    counts = np.bincount(groups[kept], minlength=len(data.shares))
    likely = np.where(kept, (data.shares / np.maximum(counts, 1))[groups], 0)
    outer = data.x[data.outer]
    if data.validation is not None:
        outer = np.concatenate([outer, np.asarray(data.validation[0], outer.dtype)])
    found = embeddings.network_tangents(
        key,
        jnp.asarray(data.x),
        jnp.asarray(data.y),
        model,
        min(size, int((likely > 0).sum())),
        jnp.asarray(likely / likely.sum(), jnp.float32),
        networks,
        TANGENTS,
    )
    rows = embeddings.normalise(*(found(jnp.asarray(part)) for part in (data.x, outer)))
    return View(*rows)
