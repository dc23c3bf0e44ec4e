"""From probabilities to the coreset that is used: its K best, or a mask from p(m | s)."""

import jax
import numpy as np

from pbcs_jax.outer import masks


def draw_coreset(
    key: jax.Array,
    probabilities: jax.Array,
    size: int,
    final: str = "top_k",
    labels: np.ndarray | None = None,
    max_ratio: float = 0.0,
) -> np.ndarray:
    """The final coreset, as sorted indices.

    Args:
      key: PRNG key, consumed by 'sample'.
      probabilities: `[n]`, s.
      size: K.
      final: 'top_k', the K largest probabilities (exactly K), or 'sample', a mask from p(m | s).
      labels: `[n]` integer classes, for `max_ratio`.
      max_ratio: of 'top_k': the largest class of the coreset has at most so many times the samples
        of the smallest, the best of each class are taken, and fewer than K where the smallest class
        has too few candidates (`balanced_size`). 0 leaves the classes alone.

    >>> draw_coreset(jax.random.key(0), np.array([0.9, 0.0, 1.0, 0.2]), 2).tolist()
    [0, 2]
    >>> labels = np.array([0, 1, 0, 0, 1])
    >>> s = np.array([0.9, 0.1, 1.0, 0.8, 0.2])
    >>> draw_coreset(jax.random.key(0), s, 3, labels=labels, max_ratio=2.0).tolist()
    [0, 2, 4]
    """
    if final == "sample":
        return np.flatnonzero(masks.sample_masks(key, probabilities, 1)[0])
    if not max_ratio or labels is None:
        _, indices = jax.lax.top_k(probabilities, size)
        return np.sort(np.asarray(indices))
    order = np.argsort(-np.asarray(probabilities), kind="stable")
    _, labels = np.unique(labels, return_inverse=True)
    available = _available(labels, max_ratio)
    by_class = [order[labels[order] == c][:room] for c, room in enumerate(available)]
    allowed = order[np.isin(order, np.concatenate(by_class))]
    counts = np.bincount(labels[allowed[:size]], minlength=len(available))
    counts = _balance(counts, available, max_ratio)
    chosen = [own[:count] for own, count in zip(by_class, counts, strict=True)]
    return np.sort(np.concatenate(chosen))


def balanced_size(labels: np.ndarray, max_ratio: float) -> int:
    """How many samples a coreset can have whose classes differ by at most `max_ratio`.

    >>> balanced_size(np.array([0, 0, 0, 0, 0, 1, 1, 2]), 2.0)  # two, two and one
    5
    """
    _, labels = np.unique(labels, return_inverse=True)
    return int(_available(labels, max_ratio).sum())


def _available(labels: np.ndarray, max_ratio: float) -> np.ndarray:
    """Of each class, as many as there are, up to `max_ratio` times the smallest."""
    counts = np.bincount(labels)
    return np.minimum(counts, int(max_ratio * counts.min()))


def _balance(counts: np.ndarray, available: np.ndarray, max_ratio: float) -> np.ndarray:
    """`counts` after moving single samples from the largest class to the smallest that has more."""
    counts = counts.copy()
    for _ in range(counts.sum()):
        can_grow = counts < available
        smallest = int(np.argmin(np.where(can_grow, counts, np.iinfo(counts.dtype).max)))
        largest = int(np.argmax(counts))
        few_enough = counts[largest] <= max_ratio * counts[smallest]
        if few_enough or not can_grow.any() or counts[largest] - counts[smallest] < 2:
            break
        counts[largest] -= 1
        counts[smallest] += 1
    return counts
