"""Calibrated classifiers for scikit-learn (extra `sklearn`). No other module of the library imports scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from trueodds import calibrators
from trueodds.calibrators import SELECT, Calibrator
from trueodds.errors import MissingExtraError, UserError
from trueodds.sums.frames import check_index
from trueodds.sums.inputs import Array, as_array, as_matrix, check_no_mask, without_tensors
from trueodds.sums.rounding import Resolution, logits_of, resolution_of

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import check_cv
    from sklearn.utils import _safe_indexing, column_or_1d, get_tags, indexable
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError:
    raise MissingExtraError("trueodds.Calibrated", "scikit-learn", "sklearn") from None


class UnseenClassError(UserError, ValueError):
    """Error if a fold of the cross-validation has no row of some class."""


class Calibrated(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn classifier whose `predict_proba` is calibrated on rows that it was not fitted on.

    It works like scikit-learn's CalibratedClassifierCV, with the calibrators of this library. The estimator's logits
    are its `decision_function`, or the logarithm of its `predict_proba`. After `fit` it has `classes_`, and the pairs
    `estimators_` and `calibrators_`. Sample weights are not supported, because calibrators do not use them.

    Args:
        estimator: A classifier. A FrozenEstimator is already fitted and keeps its fit; all rows then fit the
            calibrator.
        method: Name or class of a calibrator, or "select" (see `trueodds.fit`).
        options: Options of the calibrator, as a mapping.
        cv: Number of folds (5), a splitter, or pairs of indices, as in scikit-learn. For a splitter that needs groups,
            pass its pairs: list(splitter.split(X, y, groups)).
        ensemble: True (also "auto"): each fold's estimator gets its own calibrator, and the probabilities are their
            mean. False: there is one estimator, fitted on all rows, and one calibrator, fitted on each row's logits
            from the fold that did not see it. This is smaller and faster.
        resolution: Step to which the estimator rounds its probabilities, such as 0.01, or "exact". None: the step
            is inferred if rows of the first fold do not sum to 1; else exact.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.naive_bayes import GaussianNB
        >>> x, y = load_breast_cancer(return_X_y=True)
        >>> plain, calibrated = GaussianNB().fit(x[::2], y[::2]), trueodds.Calibrated(GaussianNB()).fit(x[::2], y[::2])
        >>> [round(trueodds.report(model.predict_proba(x[1::2]), y[1::2]).nll, 2) for model in (plain, calibrated)]
        [0.62, 0.19]
    """

    classes_: npt.NDArray[Any]
    estimators_: list[Any]
    calibrators_: list[Calibrator]

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | type[Calibrator] = SELECT,
        options: Mapping[str, Any] | None = None,
        cv: Any = None,
        ensemble: bool | Literal["auto"] = "auto",
        resolution: float | Literal["exact"] | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.options = options
        self.cv = cv
        self.ensemble = ensemble
        self.resolution = resolution

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the estimators and calibrators.

        Args:
            X: Features, as the estimator takes them.
            y: Class labels, shape (N,).

        Raises:
            ConfigError: The method or an option is unknown.
            UnseenClassError: A fold has no row of some class.
            ValueError: An option has a value that is not allowed, or the objective does not use it; labels are not
                classes or are missing; values are masked; the estimator has no scores, or for another number of
                classes. A FrozenEstimator that is not fitted has scikit-learn's NotFittedError.
        """
        calibrators.check(self.method, self.options or {})
        if self.ensemble not in (True, False, "auto"):
            raise ValueError(f"ensemble is {self.ensemble!r}; allowed are True, False and 'auto'")
        check_no_mask(X, "X")
        check_index(X=X, y=y)
        X = without_tensors(X)
        X, y = indexable(X, y)
        y = column_or_1d(as_array(y, "y"), warn=True)
        check_classification_targets(y)
        frozen = isinstance(self.estimator, FrozenEstimator)
        if frozen:
            check_is_fitted(self.estimator)
        elif isinstance(self.cv, str):
            cure = "wrap a fitted estimator: Calibrated(FrozenEstimator(estimator)), of sklearn.frozen"
            raise ValueError(
                f"cv is {self.cv!r}; allowed are a number of folds, a splitter and pairs of indices; {cure}"
            )
        self.classes_ = self.estimator.classes_ if frozen else np.unique(y)
        if len(self.classes_) == 1:
            raise ValueError(f"y has one class, {self.classes_.tolist()[0]!r}; give rows of two classes or more")
        labels_N = self._indices(y)
        self.estimators_, self.calibrators_ = [], []
        self.resolution_: Resolution | None = None
        if frozen:
            self._add(self.estimator, self._logits(self.estimator, X), labels_N)
        elif self.ensemble:
            for model, inside in self._folds(X, y):
                self._add(model, self._logits(model, _safe_indexing(X, inside)), labels_N[inside])
        else:
            logits_NC = np.full((len(y), len(self.classes_)), np.nan)
            for model, inside in self._folds(X, y):
                logits_NC[inside] = self._logits(model, _safe_indexing(X, inside))
            held_out_N = ~np.isnan(logits_NC[:, 0])
            self._add(clone(self.estimator).fit(X, y), logits_NC[held_out_N], labels_N[held_out_N])
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Compute calibrated probabilities, shape (N, C), in the order of `classes_`."""
        check_is_fitted(self)
        check_no_mask(X, "X")
        X = without_tensors(X)
        pairs = zip(self.estimators_, self.calibrators_, strict=True)
        mean_NC: Array = np.mean([calibrator(self._logits(model, X)) for model, calibrator in pairs], axis=0)
        return mean_NC

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of the highest calibrated probability. It may differ from the estimator's own prediction."""
        best = self.predict_proba(X).argmax(axis=1)
        predicted: npt.NDArray[Any] = self.classes_[best]
        return predicted

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = own.input_tags
        return tags

    def _folds(self, X: Any, y: npt.NDArray[Any]) -> Iterator[tuple[Any, npt.NDArray[np.intp]]]:
        """Yield the estimator fitted on all folds but one, and the rows of that one."""
        for others, inside in check_cv(self.cv, y, classifier=True).split(X, y):
            if missing := sorted(set(self.classes_.tolist()) - set(y[others].tolist()), key=str):
                raise UnseenClassError(
                    f"class {missing[0]!r} has {int((y == missing[0]).sum())} of {len(y)} rows, and the rest of a fold"
                    " none of them; give more rows of it, or a cv whose every part but one has all classes"
                )
            yield clone(self.estimator).fit(_safe_indexing(X, others), y[others]), inside

    def _add(self, model: Any, logits_NC: Array, labels_N: npt.NDArray[np.intp]) -> None:
        self.estimators_.append(model)
        options = {**(self.options or {}), "resolution": self.resolution_}
        self.calibrators_.append(calibrators.fit(logits_NC, labels_N, self.method, **options))

    def _indices(self, y: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        place = {name: k for k, name in enumerate(self.classes_.tolist())}
        if unknown := [name for name in np.unique(y).tolist() if name not in place]:
            raise ValueError(f"y holds {unknown[0]!r}; the fitted estimator knows {', '.join(map(repr, place))}")
        return np.array([place[name] for name in y.tolist()], dtype=np.intp)

    def _logits(self, model: Any, X: Any) -> Array:
        if not hasattr(model, "decision_function"):
            if not hasattr(model, "predict_proba"):
                raise ValueError(
                    f"{type(model).__name__} has neither decision_function nor predict_proba; give a classifier with"
                    " one of them (VotingClassifier: voting='soft')"
                )
            p_NC = as_matrix(model.predict_proba(X), "predict_proba")
            if self.resolution_ is None:  # the first fold decides for all rows
                self.resolution_ = resolution_of(p_NC, self.resolution)
            logits_NC = logits_of(p_NC, resolution=self.resolution_)
        else:
            logits_NC = as_array(model.decision_function(X), "decision_function").astype(np.float64)
            if logits_NC.ndim == 1:
                logits_NC = np.stack([np.zeros(len(logits_NC)), logits_NC], axis=1)
        if logits_NC.shape[1] != len(self.classes_):
            raise ValueError(
                f"decision_function of {type(model).__name__} gives {logits_NC.shape[1]} columns for"
                f" {len(self.classes_)} classes; it must give one for each: decision_function_shape='ovr'"
            )
        own = np.asarray(getattr(model, "classes_", self.classes_))
        if _may_have_pairs(model) and (own[logits_NC.argmax(axis=1)] != model.predict(X)).any():
            raise ValueError(
                f"decision_function of {type(model).__name__} gives a column for each pair of the three classes; it"
                " must give one for each class: decision_function_shape='ovr'"
            )
        return logits_NC[:, self._columns(own)]

    def _columns(self, own: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Return the column of each class among those of an estimator whose classes are `own`.

        Raises:
            ValueError: The estimator has other classes.
        """
        place = {name: k for k, name in enumerate(own.tolist())}
        if {*place} != {*self.classes_.tolist()}:
            raise ValueError(f"the estimator has the classes {own.tolist()}, and y has {self.classes_.tolist()}")
        return np.array([place[name] for name in self.classes_.tolist()])


def _may_have_pairs(model: Any) -> bool:
    """Return whether the model has a decision function and it, or a part of it, is set to score pairs of classes.

    Three classes have three pairs, so the number of columns does not show it.
    """
    parts = model.estimator if isinstance(model, FrozenEstimator) else model
    settings = parts.get_params() if hasattr(model, "decision_function") and hasattr(parts, "get_params") else {}
    return any(name.endswith("decision_function_shape") and value == "ovo" for name, value in settings.items())
