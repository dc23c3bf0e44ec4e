"""The methods that `benchmarks.peers` compares: other packages, plain draws, and this library.

Each chooses `size` of the same candidates. A package is imported when its method is first called.
"""

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import pbcs_jax as pbcs
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.baselines.samples import quotas
from pbcs_jax.baselines.samples.scores import highest_of_each_class

KERNEL, AUTO = "PBCS: kernel", "PBCS: auto"
FOLDS = 5
"""Of the cross-validation that cleanlab's probabilities come from."""


class Missing(Exception):
    """There is no such method here; its text says why."""


class Cell(NamedTuple):
    """What a method chooses from.

    Attributes:
      candidates: with the judge's network as the proxy, and the validation set if there is one.
      size: K.
      seed: of everything random.
      shared: what two methods compute alike, and the seconds that it took, by name.
    """

    candidates: Candidates
    size: int
    seed: int
    shared: dict[str, tuple[Any, np.ndarray]]

    @property
    def rows(self) -> np.ndarray:
        """`[n, d]`, the inputs of each candidate in one row."""
        return np.asarray(self.candidates.x).reshape(self.candidates.n, -1)

    @property
    def y(self) -> np.ndarray:
        """`[n]` classes."""
        return np.asarray(self.candidates.y)

    @property
    def quotas(self) -> np.ndarray:
        """`[C]`, K spread over the classes as evenly as they allow."""
        return _even(self.y, self.size, self.candidates.num_classes)


class Method(NamedTuple):
    """One row of the table.

    Attributes:
      select: what it chooses of a cell.
      uses_validation: whether it looks at the validation set.
      shares: what of `Cell.shared` it computes, or finds there; its seconds count in both cases.
    """

    select: Callable[[Cell], np.ndarray]
    uses_validation: bool = False
    shares: str = ""


def load(module: str) -> Any:
    """A module of a package that need not be installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Missing("not installed") from error


def clocks() -> np.ndarray:
    """Seconds by the clock, and of the processor, of all threads together."""
    return np.array([time.perf_counter(), time.process_time()])


def _even(y: np.ndarray, size: int, num_classes: int) -> np.ndarray:
    counts = np.bincount(y, minlength=num_classes)
    return quotas.even(counts, min(size, int(counts.sum())))


def _of_all(choose: Callable[..., np.ndarray], cell: Cell) -> np.ndarray:
    return choose(cell.rows, cell.size, cell.seed)


def _of_each_class(choose: Callable[..., np.ndarray], cell: Cell) -> np.ndarray:
    chosen = []
    for label, wanted in enumerate(cell.quotas):
        own = np.flatnonzero(cell.y == label)
        if 0 < wanted < len(own):
            own = own[choose(cell.rows[own], int(wanted), cell.seed)]
        chosen.append(own[:wanted])
    return np.concatenate(chosen)


def facility_location(rows: np.ndarray, size: int, seed: int) -> np.ndarray:
    """apricot: those that are nearest to all others, by Euclidean distance."""
    make = load("apricot").FacilityLocationSelection
    options = {"metric": "euclidean", "optimizer": "lazy", "random_state": seed}
    return make(size, **options).fit(rows.astype(np.float64)).ranking


def kernel_herding(rows: np.ndarray, size: int, seed: int) -> np.ndarray:
    """coreax: kernel herding, Gaussian kernel with the median heuristic for its width."""
    coreax, kernels = load("coreax"), load("coreax.kernels")
    rng = np.random.default_rng(seed)
    some = rows[rng.permutation(len(rows))[:1000]]
    width = float(kernels.median_heuristic(some)) if len(some) > 1 else 0.0
    kernel = kernels.SquaredExponentialKernel(length_scale=width or 1.0)
    solver = load("coreax.solvers").KernelHerding(size, kernel=kernel, unique=True)
    coreset, _ = solver.reduce(coreax.Data(jax.numpy.asarray(rows)))
    return np.asarray(coreset.unweighted_indices)


def cleaned(cell: Cell, best: bool) -> np.ndarray:
    """cleanlab: without the label issues, an even draw of the classes, or their most certain.

    The probabilities are those of logistic regression, cross-validated.
    """
    ranks = load("cleanlab.rank")
    if "cleanlab" not in cell.shared:
        began = clocks()
        cell.shared["cleanlab"] = _label_issues(cell), clocks() - began
    (codes, probabilities, issues), _ = cell.shared["cleanlab"]
    kept = np.flatnonzero(~issues)
    scores = (
        ranks.get_label_quality_scores(codes, probabilities)[kept]
        if best
        else np.random.default_rng(cell.seed).random(len(kept))
    )
    wanted = _even(codes[kept], cell.size, probabilities.shape[1])
    return kept[highest_of_each_class(scores, codes[kept], wanted)]


def _label_issues(cell: Cell) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of the classes that there are `[n]`, their probabilities, and where labels are odd."""
    find = load("cleanlab.filter").find_label_issues
    selection = load("sklearn.model_selection")
    _, codes = np.unique(cell.y, return_inverse=True)
    folds = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=cell.seed)
    probabilities = selection.cross_val_predict(
        logistic_regression(), cell.rows, codes, cv=folds, method="predict_proba"
    )
    return codes, probabilities, find(codes, probabilities, n_jobs=1)


def under_sampled(cell: Cell, near_miss: bool) -> np.ndarray:
    """imbalanced-learn: each class brought down to its share of K."""
    samplers = load("imblearn.under_sampling")
    counts = np.bincount(cell.y, minlength=len(cell.quotas))
    # A class that is wanted whole is not brought down.
    wanted = {c: int(k) for c, k in enumerate(cell.quotas) if k < counts[c]}
    if near_miss:
        options = {
            "n_neighbors": min(3, int(counts[counts > 0].min())),
            "n_neighbors_ver3": max(3, *wanted.values()),  # the default, 3, can give less than K
        }
        sampler = samplers.NearMiss(version=3, sampling_strategy=wanted, **options)
    else:
        sampler = samplers.RandomUnderSampler(sampling_strategy=wanted, random_state=cell.seed)
    sampler.fit_resample(cell.rows, cell.y)
    return sampler.sample_indices_


def logistic_regression() -> Any:
    """scikit-learn's, on standardised inputs."""
    scale = load("sklearn.preprocessing").StandardScaler()
    fit = load("sklearn.linear_model").LogisticRegression(max_iter=1000)
    return load("sklearn.pipeline").make_pipeline(scale, fit)


def _baseline(name: str, cell: Cell) -> np.ndarray:
    return BASELINES[name](jax.random.key(cell.seed), cell.candidates, cell.size)


def _pbcs(objective: str, cell: Cell) -> np.ndarray:
    data = cell.candidates
    options: dict[str, Any] = {"objective": objective, "progress": False}
    found = pbcs.select_coreset(
        cell.seed, data.x, data.y, None, cell.size, data.validation, **options
    )
    return found.indices


SAMPLES: dict[str, Method] = {
    **{
        name: Method(partial(_baseline, name), uses_validation=name == "greedy")
        for name in ("uniform", "stratified", *BASELINES)
        if name != "whole"
    },
    "apricot: facility location": Method(partial(_of_all, facility_location)),
    "apricot: by class": Method(partial(_of_each_class, facility_location)),
    "coreax: kernel herding": Method(partial(_of_all, kernel_herding)),
    "coreax: by class": Method(partial(_of_each_class, kernel_herding)),
    "cleanlab: balanced draw": Method(partial(cleaned, best=False), shares="cleanlab"),
    "cleanlab: best balanced": Method(partial(cleaned, best=True), shares="cleanlab"),
    "imbalanced-learn: random": Method(partial(under_sampled, near_miss=False)),
    "imbalanced-learn: NearMiss-3": Method(partial(under_sampled, near_miss=True)),
    KERNEL: Method(partial(_pbcs, "kernel"), uses_validation=True),
    AUTO: Method(partial(_pbcs, "auto"), uses_validation=True),
}


def _random_inputs(cell: Cell) -> np.ndarray:
    width = cell.rows.shape[1]
    return np.random.default_rng(cell.seed).permutation(width)[: cell.size]


def _best_inputs(score: str, cell: Cell) -> np.ndarray:
    selection = load("sklearn.feature_selection")
    function = getattr(selection, score)
    if score == "mutual_info_classif":
        function = partial(function, random_state=cell.seed)
    return selection.SelectKBest(function, k=cell.size).fit(cell.rows, cell.y).get_support(True)


def _sequential_inputs(direction: str, cell: Cell) -> np.ndarray:
    make = load("sklearn.feature_selection").SequentialFeatureSelector
    folds = load("sklearn.model_selection").StratifiedKFold(5, shuffle=True, random_state=cell.seed)
    options = {"n_features_to_select": cell.size, "direction": direction, "cv": folds}
    return make(logistic_regression(), **options).fit(cell.rows, cell.y).get_support(True)


def _pbcs_inputs(cell: Cell) -> np.ndarray:
    found = pbcs.select_features(
        cell.seed, cell.rows, cell.y, None, cell.size, objective="kernel", progress=False
    )
    return found.indices


INPUTS: dict[str, Method] = {
    "uniform": Method(_random_inputs),
    "SelectKBest: F-score": Method(partial(_best_inputs, "f_classif")),
    "SelectKBest: mutual information": Method(partial(_best_inputs, "mutual_info_classif")),
    "SequentialFeatureSelector: forward": Method(partial(_sequential_inputs, "forward")),
    KERNEL: Method(_pbcs_inputs),
}
