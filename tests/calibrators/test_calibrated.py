"""The scikit-learn estimator: its checks, its cross-fitting, and scikit-learn's own as a twin."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import trueodds
from trueodds.calibrated import Calibrated, UnseenClassError
from trueodds.errors import ConfigError

X, Y = load_wine(return_X_y=True)
X = X[:, :4]  # fewer features, so that not every row is right
NOTHING: Any = None
NAMES = np.array(["barbera", "barolo", "grignolino"])


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (LinearSVC(), {"ensemble": False, "method": "temperature"}),
        pytest.param(GaussianNB(), {"cv": 2}, marks=pytest.mark.full),
    ],
    ids=lambda value: type(value).__name__,
)
def test_scikit_learns_checks(estimator: Any, options: dict[str, Any]) -> None:
    results = check_estimator(Calibrated(estimator, **options), on_fail=None, on_skip=None)
    assert len(results) > 40 and {r["check_name"] for r in results if r["status"] in ("failed", "xfail")} == set()


@pytest.mark.parametrize("ensemble", [True, False, "auto"])
@pytest.mark.parametrize("estimator", [GaussianNB(), LinearSVC()], ids=["probabilities", "decision function"])
def test_temperature_scaling_is_scikit_learns(estimator: Any, ensemble: Any) -> None:
    """Without the prior, by the same folds; theirs stops at 1e-4 or so of beta."""
    ours = Calibrated(estimator, method="temperature", options={"shrinkage": 0.0}, ensemble=ensemble).fit(X, Y)
    theirs = CalibratedClassifierCV(estimator, method="temperature", ensemble=ensemble).fit(X, Y)
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=2e-3)
    assert len(ours.calibrators_) == len(theirs.calibrated_classifiers_) == (1 if ensemble is False else 5)


def test_one_calibrator_is_that_of_the_logits_out_of_fold() -> None:
    folds = KFold(3, shuffle=True, random_state=0)
    ours, logits = Calibrated(LinearSVC(), method="vector", ensemble=False, cv=folds).fit(X, Y), np.empty((178, 3))
    for others, inside in folds.split(X):
        logits[inside] = LinearSVC().fit(X[others], Y[others]).decision_function(X[inside])
    assert ours.calibrators_ == [trueodds.fit(logits, Y, "vector")]


def test_names_of_classes_binary_and_pickle() -> None:
    keep = Y < 2
    ours = Calibrated(LogisticRegression(), cv=3).fit(X[keep], NAMES[Y[keep]])
    p = ours.predict_proba(X[keep])
    assert p.shape == (keep.sum(), 2) and ours.classes_.tolist() == ["barbera", "barolo"] and ours.n_features_in_ == 4
    assert (ours.predict(X[keep]) == ours.classes_[p.argmax(axis=1)]).all()
    assert (pickle.loads(pickle.dumps(ours)).predict_proba(X) == ours.predict_proba(X)).all()
    assert trueodds.report(p, NAMES[Y[keep]], classes=ours.classes_.tolist()).accuracy > 0.9


def test_a_frozen_estimator_keeps_its_fit() -> None:
    forest = RandomForestClassifier(20, random_state=0).fit(X[::2], Y[::2])
    ours = Calibrated(FrozenEstimator(forest), method="temperature").fit(X[1::2], Y[1::2])
    (calibrator,) = ours.calibrators_
    assert calibrator == trueodds.fit(trueodds.logits_of(forest.predict_proba(X[1::2])), Y[1::2], "temperature")
    before, after = (trueodds.report(model.predict_proba(X[1::2]), Y[1::2]).nll for model in (forest, ours))
    assert before is not None and after is not None and after < before
    rows = Y[1::2] < 2  # classes of the fit, though the rows hold two of them
    assert Calibrated(FrozenEstimator(forest)).fit(X[1::2][rows], Y[1::2][rows]).predict_proba(X).shape == (178, 3)


def test_its_parameters_are_searched_like_any_other() -> None:
    search = GridSearchCV(Calibrated(GaussianNB(), cv=2), {"method": ["temperature", "vector"]}, cv=2).fit(X, Y)
    assert search.best_params_["method"] in ("temperature", "vector")


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (Calibrated(GaussianNB(), method="temprature"), Y, "unknown calibrator 'temprature'; .* Did you mean 'temp"),
        (Calibrated(GaussianNB(), options={"shrink": 1}), Y, "unknown option of 'select' 'shrink'; allowed: cand"),
        (Calibrated(GaussianNB(), ensemble=NOTHING), Y, "ensemble is None; allowed are True, False and 'auto'"),
        (Calibrated(SVC(decision_function_shape="ovo", break_ties=False), cv=2), np.arange(178) % 4, "shape='ovr'"),
        (
            Calibrated(StandardScaler()),
            Y,
            "StandardScaler has neither decision_function nor predict_proba; give a class",
        ),
        (Calibrated(GaussianNB(), cv="prefit"), Y, r"cv is 'prefit'; .* Calibrated\(FrozenEstimator\(estimator\)\)"),
        (Calibrated(FrozenEstimator(GaussianNB())), Y, "not fitted yet"),
        (Calibrated(FrozenEstimator(GaussianNB().fit(X, Y))), Y + 1, "y holds 3; the fitted estimator knows 0, 1, 2"),
    ],
)
def test_bad_input(estimator: Calibrated, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)


def test_errors_have_a_type() -> None:
    with pytest.raises(ConfigError):
        Calibrated(GaussianNB(), method="x").fit(X, Y)
    one_part = PredefinedSplit(np.where(Y == 2, 0, np.arange(178) % 2 + 1))
    with pytest.raises(UnseenClassError, match=r"class 2 has 48 of 178 rows, and the rest of a fold none of them"):
        Calibrated(GaussianNB(), cv=one_part).fit(X, Y)


class Reversed(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose `classes_` are in descending order, and its columns with them."""

    def fit(self, x: Any, y: Any) -> Reversed:
        self.model_ = GaussianNB().fit(x, y)
        self.classes_ = self.model_.classes_[::-1]
        return self

    def predict_proba(self, x: Any) -> Any:
        return self.model_.predict_proba(x)[:, ::-1]


@pytest.mark.parametrize("ensemble", [True, False])
def test_columns_are_taken_in_the_order_of_the_estimators_classes(ensemble: bool) -> None:
    ours = Calibrated(Reversed(), method="vector", ensemble=ensemble).fit(X, NAMES[Y])
    plain = Calibrated(GaussianNB(), method="vector", ensemble=ensemble).fit(X, NAMES[Y])
    assert ours.classes_.tolist() == NAMES.tolist()
    assert_allclose(ours.predict_proba(X), plain.predict_proba(X))


def test_a_column_for_each_pair_of_three_classes_is_refused() -> None:
    pairs = SVC(decision_function_shape="ovo")
    for estimator in (pairs, make_pipeline(StandardScaler(), pairs), FrozenEstimator(pairs.fit(X, Y))):
        with pytest.raises(ValueError, match=r"a column for each pair of the three classes; .*='ovr'"):
            Calibrated(estimator, method="temperature").fit(X, Y)


def test_a_part_that_scores_pairs_does_not_count_if_the_whole_scores_classes() -> None:
    stack = StackingClassifier([("pairs", SVC(decision_function_shape="ovo"))], LogisticRegression(), cv=2)
    assert Calibrated(stack, method="temperature", cv=2).fit(X, Y).score(X, Y) > 0.6


def test_rows_of_one_class_are_refused() -> None:
    with pytest.raises(ValueError, match="y has one class, 'barolo'; give rows of two classes or more"):
        Calibrated(GaussianNB()).fit(X, ["barolo"] * len(X))


def test_features_and_labels_with_one_index_in_two_orders_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    features, labels = pd.DataFrame(X), pd.Series(NAMES[Y])
    with pytest.raises(ConfigError, match="the index of y has the entries of that of X in another order"):
        Calibrated(GaussianNB()).fit(features, labels[::-1])
    test_split = labels.set_axis(range(1000, 1000 + len(X)))  # another index says nothing
    assert Calibrated(GaussianNB(), method="identity").fit(features, test_split).score(features, labels) > 0.6
