"""Herding: samples whose mean is the mean of their class (Welling, 2009; iCaRL, Rebuffi, 2017)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples import quotas
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.proxy import pretrained_view
from pbcs_jax.baselines.samples.scores import highest_of_each_class


@checked
def herding(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """iCaRL's exemplars: of each class as many, greedily matching the mean embedding.

    The k-th of a class is `argmin_i |mean - (e_i + sum of the k - 1 before) / k|`, with embeddings
    of length 1 in the penultimate layer of a pretrained network.

    Args:
      size: K, K / num_classes of each class; a class with fewer leaves its rest to the others.
    """
    wanted = quotas.even(np.bincount(data.y, minlength=data.num_classes), size)
    embeddings = pretrained_view(key, data).embeddings
    ranks = herding_ranks(embeddings, jnp.asarray(data.y), int(wanted.max()), data.num_classes)
    chosen = highest_of_each_class(-np.asarray(ranks), data.y, wanted)
    return chosen[np.argsort(np.asarray(ranks)[chosen], kind="stable")]  # classes in turns


@partial(jax.jit, static_argnames="num_classes")
def herding_ranks(
    embeddings: jax.Array, y: jax.Array, steps: jax.Array, num_classes: int
) -> jax.Array:
    """When each candidate is chosen in its class: 0, 1, ..., steps - 1, or n for later.

    Args:
      embeddings: `[n, d]`; their length does not matter.
      y: `[n]` classes.
      steps: how many of each class are ranked, as far as it has so many.
      num_classes: C. A step chooses one of every class at once.

    Returns:
      `[n]` integers.
    """
    n = len(y)
    length = jnp.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / jnp.maximum(length, 1e-12)
    by_class = partial(jax.ops.segment_sum, segment_ids=y, num_segments=num_classes)
    counts = by_class(jnp.ones(n))
    mean = by_class(unit) / jnp.maximum(counts, 1)[:, None]

    def body(k, carry):
        ranks, total = carry
        distance = jnp.sum((mean[y] - (total[y] + unit) / (k + 1)) ** 2, axis=1)
        distance = jnp.where(ranks < n, jnp.inf, distance)
        best = jax.ops.segment_min(distance, y, num_classes)
        is_best = (distance == best[y]) & (ranks == n)
        first = jax.ops.segment_min(jnp.where(is_best, jnp.arange(n), n), y, num_classes)
        is_chosen = jnp.arange(n) == first[y]
        return jnp.where(is_chosen, k, ranks), total + by_class(unit * is_chosen[:, None])

    start = jnp.full(n, n, jnp.int32), jnp.zeros_like(mean)
    return jax.lax.fori_loop(0, steps, body, start)[0]
