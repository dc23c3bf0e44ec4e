"""Label noise and class imbalance, as in the paper's experiments. Pure NumPy."""

import numpy as np

from pbcs_jax.errors import UserError, check_known, check_number

NOISE_KINDS = ("none", "symmetric", "pairwise")


def label_noise(
    rng: np.random.Generator, labels: np.ndarray, kind: str, rate: float, num_classes: int
) -> np.ndarray:
    """Flips each label with probability `rate`.

    The draws do not depend on `rate`: with equal generators, the labels flipped at a low rate are
    flipped at a higher one too, to the same class.

    Args:
        rng: consumed.
        labels: [n] integers in 0..num_classes-1.
        kind: `symmetric` flips to each of the other classes with `rate / (num_classes - 1)`,
            `pairwise` flips class c to c + 1 mod num_classes, `none` flips nothing.
        rate: probability of a flip, in [0, 1].
        num_classes: number of classes, at least 2.

    Returns:
        [n] int32, a copy.

    Example:
        >>> label_noise(np.random.default_rng(0), np.arange(4), "pairwise", 1.0, 4)
        array([1, 2, 3, 0], dtype=int32)
    """
    check_known("noise.kind", kind, NOISE_KINDS)
    check_number("noise.rate", rate, least=0, most=1)
    labels = _checked_labels(labels, num_classes)
    if kind == "none":
        return labels
    flipped = rng.random(len(labels)) < rate
    shift = rng.integers(1, num_classes, len(labels)) if kind == "symmetric" else 1
    return np.where(flipped, (labels + shift) % num_classes, labels).astype(np.int32)


def imbalance(
    rng: np.random.Generator, labels: np.ndarray, factor: float, num_classes: int
) -> np.ndarray:
    """Chooses a long-tailed subset: class i keeps n_i σ^i of its n_i samples, and at least one.

    σ = factor^(-1/(num_classes - 1)), so that balanced data get largest / smallest = `factor`.
    With equal generators, what a high factor keeps is a subset of what a lower one keeps.

    Args:
        rng: consumed.
        labels: [n] integers in 0..num_classes-1.
        factor: size of the largest class over that of the smallest, at least 1 (keeps all).
        num_classes: number of classes, at least 2.

    Returns:
        [m] int64, the positions kept, sorted.

    Example:
        >>> imbalance(np.random.default_rng(0), np.repeat([0, 1], 4), 4.0, 2).shape
        (5,)
    """
    check_number("imbalance.factor", factor, least=1)
    labels = _checked_labels(labels, num_classes)
    order = rng.permutation(len(labels))
    kept = []
    for c in range(num_classes):
        members = order[labels[order] == c]
        share = factor ** (-c / (num_classes - 1))
        kept.append(members[: max(1, round(len(members) * share))])
    return np.sort(np.concatenate(kept))


def _checked_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """A copy as int32 [n], or a UserError."""
    check_number("num_classes", num_classes, least=2)
    labels = np.asarray(labels)
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        raise UserError(
            f"labels go from {labels.min()} to {labels.max()}: "
            f"with {num_classes} classes they must lie in 0..{num_classes - 1}"
        )
    return labels.astype(np.int32)
