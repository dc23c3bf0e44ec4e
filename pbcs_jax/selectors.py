"""scikit-learn's interface: `CoresetSelector` chooses samples, `InputSelector` columns.

It needs scikit-learn, which comes with the extra `experiments`.
"""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from pbcs_jax.errors import UserError, check_number
from pbcs_jax.result import Result, Suspects
from pbcs_jax.select import select_coreset, select_features

try:
    from sklearn.base import BaseEstimator
    from sklearn.feature_selection import SelectorMixin
    from sklearn.utils import _safe_indexing, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise UserError(
        "the package scikit-learn is missing: pip install 'pbcs_jax[experiments]'"
    ) from error


class _Selector(BaseEstimator):
    """What both have: the parameters of a selection, and how they are handed over."""

    def __init__(
        self,
        size: float = 0.1,
        *,
        model: Any = None,
        objective: Any = None,
        validation: Any = None,
        options: Mapping[str, Any] | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ):
        self.size = size
        self.model = model
        self.objective = objective
        self.validation = validation
        self.options = options
        self.random_state = random_state
        self.progress = progress

    def _selected(self, select: Any, X: Any, y: Any, n: int) -> Result:
        """Of n, `size` or that fraction of them."""
        is_share = not isinstance(self.size, Integral) and self.size != round(self.size)
        if is_share:
            check_number("size", self.size, least=0, most=1, above=True)
        return select(
            int(check_random_state(self.random_state).randint(2**31)),
            X,
            y,
            self.model,
            max(1, round(self.size * n)) if is_share else self.size,
            self.validation,
            objective=self.objective or ("kernel" if self.model is None else "network"),
            progress=self.progress,
            **(self.options or {}),
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


class CoresetSelector(_Selector):
    """Chooses the samples that are worth training on, as a sampler of imbalanced-learn does.

    Args:
      size: how many samples, or, below 1, which share of them.
      model: see `select_coreset`; None will do unless the objective is 'network'.
      objective: see `select_coreset`; None is 'kernel' without a model, and else 'network'.
      validation: `(X, y)`, clean held-out data, or None.
      options: further ones of `select_coreset`, such as `{"max_ratio": 2.0}`.
      random_state: a seed, as in scikit-learn.
      progress: whether a bar is shown.

    Attributes:
      sample_indices_: `[K]`, which samples were chosen, sorted.
      suspects_: see `Suspects`.
      result_: the `Result`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> X_small, y_small = CoresetSelector(6).fit_resample(X, y)
    >>> X_small.shape, sorted(set(y_small.tolist()))
    ((6, 4), ['no', 'yes'])
    """

    def fit(self, X: Any, y: Any) -> "CoresetSelector":
        """Chooses samples of `X [n, ...]` with targets `y [n]`."""
        X, y = validate_data(
            self, X, y, accept_sparse=True, allow_nd=True, dtype="numeric", ensure_min_samples=2
        )
        self.result_ = self._selected(select_coreset, X, y, X.shape[0])
        self.sample_indices_ = self.result_.indices
        return self

    def fit_resample(self, X: Any, y: Any) -> tuple[Any, Any]:
        """The chosen rows of `X` and `y`, of the kind that was given."""
        self.fit(X, y)
        return _safe_indexing(X, self.sample_indices_), _safe_indexing(y, self.sample_indices_)

    @property
    def suspects_(self) -> Suspects | None:
        """Candidates whose label is probably wrong."""
        check_is_fitted(self)
        return self.result_.suspects


class InputSelector(SelectorMixin, _Selector):
    """Chooses the columns that are worth looking at; a transformer.

    Args:
      size: how many columns, or, below 1, which share of them.
      model: see `select_features`; None will do unless the objective is 'network'.
      objective: see `select_features`; None is 'kernel' without a model, and else 'network'.
      validation: `(X, y)`, held-out data, or None.
      options: further ones of `select_features`, such as `{"loss_fn": "squared_error"}`.
      random_state: a seed, as in scikit-learn.
      progress: whether a bar is shown.

    Attributes:
      result_: the `Result`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 8))
    >>> y = X[:, 2] + X[:, 5] > 0
    >>> InputSelector(2).fit(X, y).get_support(indices=True).tolist()
    [2, 5]
    """

    def fit(self, X: Any, y: Any) -> "InputSelector":
        """Chooses columns of `X [n, d]` for targets `y [n]`."""
        X, y = validate_data(self, X, y, accept_sparse=True, ensure_min_samples=2)
        if self.size > X.shape[1]:
            raise UserError(
                f"size is {self.size} and n_features = {X.shape[1]}: use at most that many"
            )
        self.result_ = self._selected(select_features, X, y, X.shape[1])
        return self

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return np.isin(np.arange(self.n_features_in_), self.result_.indices)
