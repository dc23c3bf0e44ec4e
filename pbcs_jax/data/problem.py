"""From a data set to a selection problem: candidates, a clean validation set, and a test set."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pbcs_jax import border
from pbcs_jax.data.corruption import imbalance, label_noise
from pbcs_jax.data.sources import Dataset
from pbcs_jax.errors import UserError, check_number
from pbcs_jax.rows import Rows

# Mean and standard deviation per channel, of pixels in [0, 1], by name and shape of a sample.
KNOWN_STATISTICS = {
    ("mnist", (28, 28, 1)): ((0.1307,), (0.3081,)),
    ("cifar10", (32, 32, 3)): ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}


class Problem(NamedTuple):
    """What a coreset is selected from, and what it is judged by.

    Attributes:
        x: float32 [n, ...], the candidates, normalised; of mapped files `Rows` of the same.
        y: int32 [n], their labels, possibly corrupted.
        y_true: int32 [n], their labels before the noise; for analysis, never for training.
        x_val: float32 [v, ...], normalised, or None: clean, class-balanced, no candidate among it.
        y_val: int32 [v], or None.
        x_test: float32 [m, ...], normalised.
        y_test: int32 [m].
        images: [n, H, W, C], the candidates' raw pixels, or None if they are no pictures; as `x`.
        indices: int64 [n], the row of the data set's x_train that each candidate came from.
        classes: [C] what the user calls them, in the order of the labels.
        name: the data set.
        source: the source that served it.
        names: [d] of the columns of a table, or None.
        fingerprint: of the data set, see `data.fingerprints`; empty if it was not taken.
        order: [d], how the inputs are permuted, x_test not yet; or None. See `tasks.permuted`.
    """

    x: Any
    y: np.ndarray
    y_true: np.ndarray
    x_val: np.ndarray | None
    y_val: np.ndarray | None
    x_test: np.ndarray
    y_test: np.ndarray
    images: Any
    indices: np.ndarray
    classes: np.ndarray
    name: str
    source: str
    names: list[str] | None = None
    fingerprint: Mapping[str, str] = MappingProxyType({})
    order: np.ndarray | None = None

    @property
    def num_classes(self) -> int:
        """How many there are."""
        return len(self.classes)

    @property
    def labels(self) -> np.ndarray:
        """[n], as the user calls them, possibly corrupted."""
        return self.classes[self.y]

    @property
    def validation(self) -> tuple[np.ndarray, np.ndarray] | None:
        """`(x_val, y_val)`, or None if there are none."""
        if self.x_val is None or self.y_val is None:
            return None
        return self.x_val, self.y_val


def make_problem(
    dataset: Dataset,
    *,
    seed: int,
    num_candidates: int = 0,
    num_validation: int = 0,
    noise_kind: str = "none",
    noise_rate: float = 0.0,
    imbalance_factor: float = 1.0,
    input_noise: float = 0.0,
) -> Problem:
    """Chooses validation set and candidates at random, then corrupts the candidates.

    Each choice has its own random stream, so that changing the noise, say, changes no candidate.

    Args:
        dataset: where the samples come from.
        seed: of every random choice, at least 0.
        num_candidates: how many to choose from, before the imbalance; 0 for all that remain.
        num_validation: size of the clean validation set, even over the classes; 0 for none.
        noise_kind: `none`, `symmetric` or `pairwise`: see `label_noise`.
        noise_rate: the share of the candidates' labels that is flipped.
        imbalance_factor: largest class over smallest: see `imbalance`. 1 leaves the classes alone.
        input_noise: standard deviation of Gaussian noise on the normalised inputs of candidates,
            validation and test set alike.

    Example:
        >>> from pbcs_jax.data import load
        >>> problem = make_problem(load("bundled"), seed=0, num_candidates=500, num_validation=100)
        >>> problem.x.shape, problem.x_val.shape
        ((500, 28, 28, 1), (100, 28, 28, 1))
    """
    check_number("seed", seed, least=0)
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(5)]
    for_validation, for_candidates, for_imbalance, for_noise, for_inputs = streams
    labels, num_classes = dataset.y_train, dataset.num_classes

    validation = _balanced(for_validation, labels, num_validation, num_classes)
    rest = np.setdiff1d(np.arange(len(labels)), validation)
    if not 0 <= num_candidates <= len(rest) or len(rest) == 0:
        raise UserError(
            f"{num_candidates or 'all'} candidates are asked for, but {dataset.name} has "
            f"{len(rest)} training samples beside the {num_validation} of the validation set: "
            "ask for at least 1 and at most that many, or for 0 to take them all"
        )
    indices = for_candidates.permutation(rest)[: num_candidates or len(rest)]
    indices = indices[imbalance(for_imbalance, labels[indices], imbalance_factor, num_classes)]
    y_true = labels[indices]
    y = label_noise(for_noise, y_true, noise_kind, noise_rate, num_classes)

    if isinstance(given := dataset.x_train, Rows):
        if input_noise:
            raise UserError(f"inputs.noise is {input_noise}, and x is a mapped file: use 0")
        indices, y, y_true = _in_order(indices, y, y_true)  # of the file, which is read so
        raw: Any = Rows(lambda some: given[indices[some]], len(indices))
        mean, std = _statistics(raw.some(), dataset.name)
    else:
        raw = given[indices]
        mean, std = _statistics(raw, dataset.name)

    def prepared(x):
        if isinstance(x, Rows):
            return x.then(prepared)
        x = border.standardise(x, mean, std)
        if input_noise:
            x += np.float32(input_noise) * for_inputs.standard_normal(x.shape, np.float32)
        return x

    return Problem(
        x=prepared(raw),
        y=y,
        y_true=y_true,
        x_val=prepared(dataset.x_train[validation]) if num_validation else None,
        y_val=labels[validation] if num_validation else None,
        x_test=prepared(dataset.x_test),
        y_test=dataset.y_test,
        images=raw if raw.ndim == 4 else None,
        indices=indices,
        classes=dataset.classes,
        name=dataset.name,
        source=dataset.source,
        names=dataset.names,
    )


def _in_order(indices: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Candidates in the order of the data set."""
    order = np.argsort(indices)
    return [values[order] for values in (indices, *others)]


def _balanced(
    rng: np.random.Generator, labels: np.ndarray, size: int, num_classes: int
) -> np.ndarray:
    """[size] positions, class-balanced give or take one, in random order."""
    check_number("num_validation", size, least=0)
    order = rng.permutation(len(labels))
    wanted = size // num_classes + (np.arange(num_classes) < size % num_classes)
    available = np.bincount(labels, minlength=num_classes)
    if np.any(wanted > available):
        c = int(np.argmax(wanted > available))
        raise UserError(
            f"a balanced validation set of {size} needs {wanted[c]} samples of class {c}, which "
            f"has {available[c]}: lower num_validation to {num_classes * available.min()} or less"
        )
    chosen = [order[labels[order] == c][: wanted[c]] for c in range(num_classes)]
    return rng.permutation(np.concatenate(chosen))


def _statistics(x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation in the units of x, per channel [C] or per column [d]."""
    if x.dtype == np.uint8 and (name, x.shape[1:]) in KNOWN_STATISTICS:
        mean, std = np.array(KNOWN_STATISTICS[name, x.shape[1:]]) * 255
        return mean, std
    return border.statistics(x)
