"""Moderate coreset: neither the typical nor the odd (Xia et al., 2023)."""

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples import quotas
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.proxy import pretrained_view
from pbcs_jax.baselines.samples.scores import highest_of_each_class


@checked
def moderate(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """Of each class, those whose distance from its centre is nearest to the median distance.

    In the penultimate layer of a pretrained network; each class gets its share of the candidates.
    """
    embeddings = np.asarray(pretrained_view(key, data).embeddings)
    wanted = quotas.proportional(np.bincount(data.y, minlength=data.num_classes), size)
    return highest_of_each_class(-from_median(embeddings, data.y, data.num_classes), data.y, wanted)


def from_median(embeddings: np.ndarray, y: np.ndarray, num_classes: int) -> np.ndarray:
    """| |e_i - centre of its class| - the class's median of that |, `[n]`, of `[n, d]`."""
    counts = np.bincount(y, minlength=num_classes)
    total = np.asarray(jax.ops.segment_sum(jnp.asarray(embeddings), jnp.asarray(y), num_classes))
    centres = total / np.maximum(counts, 1)[:, None]
    distance = np.linalg.norm(embeddings - centres[y], axis=1)
    # Sorted within its class, the median is the middle one or the mean of the two.
    ordered = distance[np.lexsort((distance, y))]
    start = np.cumsum(counts) - counts
    last = len(y) - 1
    low, high = start + np.maximum(counts - 1, 0) // 2, start + counts // 2
    median = (ordered[np.minimum(low, last)] + ordered[np.minimum(high, last)]) / 2
    return np.abs(distance - median[y])
