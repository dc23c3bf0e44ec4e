"""The classes in scikit-learn's style: its own checks, pipelines, and data of any kind."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from imblearn.pipeline import make_pipeline as make_sampling_pipeline
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import pbcs_jax as pbcs
from pbcs_jax import selectors

QUICK = {"outer_steps": 2, "num_masks": 2, "ridge": 0.1}
QUICK_INPUTS = {"outer_steps": 2, "num_masks": 2, "ridge": 0.1, "bandwidth": 1.0, "samples": 20}


SELECTED: dict[bytes, pbcs.Result] = {}


@pytest.fixture
def selected_once(monkeypatch):
    """The checks fit the same data in many ways: each question is answered once."""
    for select in (selectors.select_coreset, selectors.select_features):

        def selected(key, x, *more, select=select, **options):
            x = x.toarray() if scipy.sparse.issparse(x) else x
            try:
                question = pickle.dumps((select.__name__, key, x, more, sorted(options.items())))
            except (TypeError, AttributeError, pickle.PicklingError):
                return select(key, x, *more, **options)
            if question not in SELECTED:
                SELECTED[question] = select(key, x, *more, **options)
            return SELECTED[question]

        monkeypatch.setattr(selectors, select.__name__, selected)


@parametrize_with_checks(
    [pbcs.CoresetSelector(5, options=QUICK), pbcs.InputSelector(2, options=QUICK_INPUTS)]
)
def test_the_checks_of_scikit_learn(estimator, check, selected_once):
    check(estimator)


def test_samples_come_back_as_they_were_given():
    x, y = load_wine(return_X_y=True, as_frame=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    selector = pbcs.CoresetSelector(20, options={"outer_steps": 20, "max_ratio": 2.0})
    small, labels = selector.fit_resample(x, names)
    assert list(small.columns) == list(x.columns) and small.shape == (20, 13)
    assert small.index.tolist() == selector.sample_indices_.tolist()
    assert set(labels) <= set(names) and labels.tolist() == names[selector.sample_indices_].tolist()
    assert selector.feature_names_in_.tolist() == list(x.columns)
    again = clone(selector).fit(x, names)
    np.testing.assert_array_equal(again.sample_indices_, selector.sample_indices_)
    assert set(selector.suspects_.labels) <= set(names)
    sparse, _ = selector.fit_resample(scipy.sparse.csr_matrix(x), names)
    assert scipy.sparse.issparse(sparse) and sparse.shape == (20, 13)


def test_sizes_may_be_shares():
    x, y = load_wine(return_X_y=True)
    assert len(pbcs.CoresetSelector(0.1, options=QUICK).fit(x, y).sample_indices_) == 18
    assert pbcs.InputSelector(0.5, options=QUICK_INPUTS).fit(x, y).get_support().sum() == 6
    for size in (0, 1.5, -0.1, 200):
        with pytest.raises(pbcs.UserError, match="size is"):
            pbcs.CoresetSelector(size, options=QUICK).fit(x, y)


def test_pictures_too():
    x = np.random.default_rng(0).normal(size=(40, 8, 8, 1))
    y = np.arange(40) % 2
    small, labels = pbcs.CoresetSelector(6, options=QUICK).fit_resample(x, y)
    assert small.shape == (6, 8, 8, 1) and labels.shape == (6,)


def test_a_pipeline_of_imbalanced_learn_trains_on_the_coreset_only():
    x, y = load_breast_cancer(return_X_y=True)
    selector = pbcs.CoresetSelector(40, options={"outer_steps": 20, "num_masks": 8})
    judge = LogisticRegression(max_iter=5000)
    pipeline = make_sampling_pipeline(selector, judge)
    pipeline.fit(x[:400], y[:400])
    chosen = pipeline[0].sample_indices_
    assert len(chosen) == 40
    alone = LogisticRegression(max_iter=5000).fit(x[:400][chosen], y[:400][chosen])
    np.testing.assert_array_equal(pipeline.predict(x[400:]), alone.predict(x[400:]))
    assert cross_val_score(pipeline, x, y, cv=2).min() > 0.85


def test_a_pipeline_with_cross_validation_chooses_columns():
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    selector = pbcs.InputSelector(5, options={"outer_steps": 20})
    pipeline = make_pipeline(selector, LogisticRegression(max_iter=5000))
    search = GridSearchCV(pipeline, {"inputselector__size": [1, 5]}, cv=2).fit(x, y)
    assert search.best_params_ == {"inputselector__size": 5} and search.best_score_ > 0.9
    names = search.best_estimator_[0].get_feature_names_out()
    assert len(names) == 5 and set(names) <= set(x.columns)


def test_regression_takes_one_option():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 6))
    y = np.round(100 * (x[:, 1] - 2 * x[:, 4]))
    options = {"loss_fn": "squared_error"}
    assert pbcs.InputSelector(2, options=options).fit(x, y).get_support(True).tolist() == [1, 4]
    selector = pbcs.CoresetSelector(10, options=options | QUICK).fit(x, y)
    assert selector.suspects_.labels.dtype.kind == "f"
