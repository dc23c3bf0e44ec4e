"""What is known of the data before anything is chosen."""

from typing import Any, NamedTuple

import numpy as np

from pbcs_jax.baselines.samples import quotas
from pbcs_jax.inner.losses import is_classes

BALANCED = 3.0
"""Classes whose sizes differ by more than this count alike, unless there are validation data."""


class Facts(NamedTuple):
    """What decides the plan.

    Attributes:
      n: number of candidates.
      size: K.
      num_classes: C; 0 of a regression.
      shape: of one sample.
      validation: number of validation samples.
      has_model: whether the user gave a model.
      outvoted: share of the candidates whose label the others outvote.
      doubted: the same of the validation data; 0 without any. What exceeds it are wrong labels.
    """

    n: int
    size: int
    num_classes: int
    shape: tuple[int, ...]
    validation: int
    has_model: bool
    outvoted: float = 0.0
    doubted: float = 0.0

    def told(self, margins: np.ndarray, kept: np.ndarray) -> "Facts":
        """With what the votes on the labels of the pool, and then of the validation data, tell."""
        own = len(margins) - self.validation
        doubted = float(np.mean(margins[own:] < 0)) if self.validation else 0.0
        return self._replace(outvoted=1 - float(np.mean(kept[:own])), doubted=doubted)

    @property
    def noise(self) -> tuple[float, float]:
        """Bounds of the share of wrong labels, as far as the votes tell."""
        if self.validation:
            found = max(self.outvoted - self.doubted, 0.0)
            return 0.7 * found, 1.5 * found + 0.02
        return 0.0, self.outvoted

    @property
    def pictures(self) -> bool:
        """Whether samples are pictures that filters can be moved over."""
        return len(self.shape) == 3 and min(self.shape[:2]) >= 8

    @property
    def width(self) -> int:
        """Numbers per sample."""
        return int(np.prod(self.shape))


class Data(NamedTuple):
    """What is chosen from: the candidates of the pool, and validation data.

    Attributes:
      x: `[n, ...]`.
      y: `[n]` classes, or `[n, ...]` numbers.
      validation: `(x, y)` or None.
      num_classes: C; 0 of a regression.
      outer: `[m]`, the candidates that selections are judged by.
      rows: `[n]`, which candidates these are of all.
    """

    x: np.ndarray
    y: np.ndarray
    validation: tuple[np.ndarray, np.ndarray] | None
    num_classes: int
    outer: np.ndarray
    rows: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """`[n]` classes; all zeros of a regression."""
        return np.asarray(self.y) if self.num_classes else np.zeros(len(self.y), np.int32)

    @property
    def counts(self) -> np.ndarray:
        """`[max(C, 1)]` candidates of each class."""
        return np.bincount(self.groups, minlength=max(self.num_classes, 1))

    @property
    def shares(self) -> np.ndarray:
        """`[max(C, 1)]`, how much each class counts.

        As in the validation data; else as among the candidates, unless their classes differ by more
        than `BALANCED`: then all alike.
        """
        present = self.counts > 0
        wanted = self.counts.astype(float)
        if self.validation is not None and self.num_classes:
            wanted = np.bincount(self.validation[1], minlength=self.num_classes) + 1.0
        elif wanted[present].max() > BALANCED * wanted[present].min():
            wanted = np.ones_like(wanted)
        wanted = np.where(present, wanted, 0)
        return wanted / wanted.sum()

    def weights(self, allowed: np.ndarray) -> np.ndarray:
        """`[m]`, of the outer candidates that are allowed, each class by its share."""
        groups = self.groups[self.outer]
        inside = allowed[self.outer]
        counts = np.bincount(groups[inside], minlength=len(self.shares))
        weights = np.where(inside, (self.shares / np.maximum(counts, 1))[groups], 0)
        return (weights / max(weights.sum(), 1e-12)).astype(np.float32)

    def outer_weights(self, allowed: np.ndarray, share: float) -> np.ndarray:
        """`[m + v]`, of the outer candidates that are allowed and of the validation data.

        Args:
          allowed: `[n]`.
          share: of a class's weight that is its validation samples'; above 0 it is more where they
            are more of the class than its candidates, so that no sample counts more than they do.
        """
        own = self.weights(allowed)
        if self.validation is None:
            return own
        labels = np.asarray(self.validation[1]) if self.num_classes else None
        if labels is None or not share:
            v = len(self.validation[1])
            return np.concatenate([(1 - share) * own, np.full(v, share / v, np.float32)])
        groups = self.groups[self.outer]
        known = np.bincount(groups[allowed[self.outer]], minlength=len(self.shares))
        trusted = np.bincount(labels, minlength=len(self.shares))
        shares = np.where(
            trusted > 0, np.maximum(share, trusted / np.maximum(trusted + known, 1)), 0
        )
        theirs = (shares * self.shares / np.maximum(trusted, 1))[labels]
        weights = np.concatenate([own * (1 - shares)[groups], theirs])
        return (weights / max(weights.sum(), 1e-12)).astype(np.float32)


def gather(
    rng: np.random.Generator,
    x: np.ndarray,
    y: np.ndarray,
    validation: Any,
    num_classes: int,
    pool: int,
    outer: int,
    wanted: np.ndarray | None = None,
) -> Data:
    """The pool that is chosen from, and the outer candidates in it.

    Args:
      rng: consumed.
      x: `[n, ...]` candidates.
      y: `[n, ...]` their targets.
      validation: `(x, y)` or None.
      num_classes: C; 0 of a regression.
      pool: candidates at most, of each class as many as there are.
      outer: of these, at most.
      wanted: candidates that are in the pool in any case; None for none.
    """
    groups = np.asarray(y) if is_classes(y) else np.zeros(len(y), np.int32)
    rows = np.arange(len(y))
    if pool < len(y):
        rows = _even(rng, groups, pool)
        if wanted is not None:
            rows = np.union1d(rows, wanted)
        x, y, groups = x[rows], y[rows], groups[rows]
    else:
        x, y = np.asarray(x), np.asarray(y)
    some = np.arange(len(y)) if outer >= len(y) else _even(rng, groups, outer)
    return Data(x, y, validation, num_classes, some, rows)


def _even(rng: np.random.Generator, groups: np.ndarray, size: int) -> np.ndarray:
    """`[size]` sorted, of each group as many."""
    wanted = quotas.even(np.bincount(groups), size)
    order = rng.permutation(len(groups))
    chosen = [order[groups[order] == group][:count] for group, count in enumerate(wanted)]
    return np.sort(np.concatenate(chosen))
