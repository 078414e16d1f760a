"""Logistic curves per class, normalised: Platt scaling, beta calibration and quadratic scaling."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.affine.dirichlet import LEAST
from trueodds.calibrators.affine.maps import UNSEEN, slope_notes
from trueodds.calibrators.base import Calibrator, Labels, Logits, check_classes_have_rows, frozen_array
from trueodds.calibrators.fitting.newton import minimise
from trueodds.calibrators.fitting.objectives import Rows
from trueodds.calibrators.temperature import range_of
from trueodds.sums.inputs import Array, softmax


@dataclass(frozen=True, eq=False)
class Sigmoids(Calibrator):
    """Base of p_k = sigma(slope_k . features_k + offset_k), each class against the rest, divided by the row's sum."""

    keeps_argmax = False

    offset_C: npt.ArrayLike
    steepest: float | None = field(default=None, kw_only=True)
    """Upper limit of the slopes during the fit; None: there was none."""

    @abstractmethod
    def _slopes(self) -> list[Array]:
        """Return for each feature one slope per class, none negative."""

    @abstractmethod
    def _features(self, log_NC: Array, log_rest_NC: Array) -> list[Array]:
        """Compute the features from ln q_k and ln(1 - q_k), each N x C."""

    @staticmethod
    @abstractmethod
    def targets(hit_N: npt.NDArray[np.bool_]) -> Array:
        """Return the targets of a class's curve, for its own rows and for the rest."""

    @property
    def classes(self) -> int:
        return len(np.asarray(self.offset_C))

    def _fit_warnings(self) -> list[str]:
        return slope_notes(np.max(self._slopes(), axis=0), self.steepest)

    def _apply(self, logits_NC: Array) -> Array:
        eta_NC = np.broadcast_to(np.asarray(self.offset_C), logits_NC.shape)
        for slope_C, feature_NC in zip(self._slopes(), self._features(*log_pair(logits_NC)), strict=True):
            eta_NC = eta_NC + slope_C * feature_NC
        return softmax(-np.logaddexp(0.0, -eta_NC))  # exp(log sigma) over its sum, which cannot underflow to 0

    @classmethod
    def _solve(cls, features: Sequence[Array], labels_N: Labels, steepest: float) -> Array:
        """Fit slopes and offsets on features N x C. The result is (features + 1) x C: slopes, then offsets."""
        fitted = []
        for k in range(features[0].shape[1]):
            x_FN = np.stack([f[:, k] for f in features])
            # Standardised features: offset and slopes then hardly interact, whatever the logits' size
            mean_F, spread_F = x_FN.mean(axis=1), x_FN.std(axis=1)
            spread_F[spread_F < 1e-12 * (1 + np.abs(mean_F))] = 1.0
            x_FN = np.vstack([(x_FN - mean_F[:, None]) / spread_F[:, None], np.ones(len(labels_N))])
            low_P, high_P = np.append(0 * spread_F, -np.inf), np.append(steepest * spread_F, np.inf)
            problem = Logistic(x_FN, cls.targets(labels_N == k))
            theta_P = minimise(problem, np.zeros(len(x_FN)), low_P, high_P, f"{cls.name}, class {k},")
            slope_F = np.clip(theta_P[:-1] / spread_F, 0.0, steepest)
            fitted.append([*slope_F, theta_P[-1] - slope_F @ mean_F])
        return np.array(fitted).T


class Logistic:
    """The logistic loss mean_n [ln(1 + exp eta_n) - t_n eta_n] with eta = x . theta."""

    def __init__(self, x_FN: Array, target_N: Array) -> None:
        self._x_FN, self._target_N = x_FN, target_N
        self._hessian_FF = np.eye(len(x_FN))

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        eta_N = theta_P @ self._x_FN
        p_N = scipy.special.expit(eta_N)
        # ln(1 + exp eta) = max(eta, 0) - ln max(p, 1 - p)
        loss_N = np.maximum(eta_N, 0.0) - np.log(np.maximum(p_N, 1 - p_N)) - self._target_N * eta_N
        self._hessian_FF = (self._x_FN * (p_N * (1 - p_N))) @ self._x_FN.T / len(p_N)
        return float(loss_N.mean()), self._x_FN @ (p_N - self._target_N) / len(p_N)

    def hessian_times(self, direction_P: Array) -> Array:
        return self._hessian_FF @ direction_P

    def hessian_diagonal(self) -> Array:
        return self._hessian_FF.diagonal()


@dataclass(frozen=True, eq=False)
class Platt(Sigmoids):
    """Platt scaling, p_k ~ sigma(a_k s_k + b_k), where s_k = ln q_k - ln(1 - q_k) are the log-odds of class k.

    Platt's targets (n+ + 1) / (n+ + 2) and 1 / (n- + 2), instead of 1 and 0, keep the optimum finite. Slopes lie in [0,
    1 / the least T of `Temperature`]. With more than two classes, each is fitted against the rest, then normalised.
    With two classes the curves are mirror images. Then this is Platt's method itself, and affine: softmax(a z + (b / 2)
    (-1, 1)).

    References:
        Platt 1999, Probabilistic outputs for support vector machines. Zadrozny and Elkan 2002, Transforming classifier
        scores into accurate multiclass probability estimates.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "platt")([[2, 0]]).round(3)
        array([[0.745, 0.255]])
    """

    name: ClassVar[str] = "platt"

    slope_C: npt.ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "offset_C", frozen_array(self.offset_C, "offset_C", (None,)))
        object.__setattr__(self, "slope_C", _slopes(self.slope_C, "slope_C", self.classes))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        check_classes_have_rows(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
        steepest = limit(logits_NC, labels_N)
        slope_C, offset_C = cls._solve([log_odds(logits_NC)], labels_N, steepest)
        return cls(offset_C, slope_C, steepest=steepest)

    def _slopes(self) -> list[Array]:
        return [np.asarray(self.slope_C)]

    def _features(self, log_NC: Array, log_rest_NC: Array) -> list[Array]:
        return [log_NC - log_rest_NC]

    @staticmethod
    def targets(hit_N: npt.NDArray[np.bool_]) -> Array:
        hits = int(hit_N.sum())
        return np.where(hit_N, (hits + 1) / (hits + 2), 1 / (len(hit_N) - hits + 2))

    def affine(self, classes: int) -> tuple[Array, Array] | None:
        if self.classes != 2:
            return None
        # p_1 = sigma(a s + b) and p_0 = sigma(-a s - b) up to rounding: the mean of the two fits
        slope_C, offset_C = np.asarray(self.slope_C), np.asarray(self.offset_C)
        return np.eye(2) * slope_C.mean(), (offset_C - offset_C[::-1]) / 4


@dataclass(frozen=True, eq=False)
class Beta(Sigmoids):
    """Beta calibration, p_k ~ sigma(a_k ln q_k - b_k ln(1 - q_k) + c_k) with a, b >= 0.

    Each class is fitted against the rest, then normalised, which fits the whole vector of probabilities. With two
    classes this is the paper's method itself, because the curves are mirror images. On separable rows the upper limit
    of `Platt` takes the place of infinity.

    References:
        Kull, Silva Filho and Flach 2017, Beta calibration, eq. 7.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "beta")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "beta"

    hit_C: npt.ArrayLike
    """a, the slope in ln q."""
    miss_C: npt.ArrayLike
    """b, the slope in -ln(1 - q)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "offset_C", frozen_array(self.offset_C, "offset_C", (None,)))
        object.__setattr__(self, "hit_C", _slopes(self.hit_C, "hit_C", self.classes))
        object.__setattr__(self, "miss_C", _slopes(self.miss_C, "miss_C", self.classes))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        check_classes_have_rows(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
        if logits_NC.shape[1] == 1:
            return cls(np.zeros(1), np.ones(1), np.ones(1))
        log_NC, log_rest_NC = log_pair(logits_NC.astype(np.float64, copy=False))
        steepest = limit(logits_NC, labels_N)
        hit_C, miss_C, offset_C = cls._solve([log_NC, -log_rest_NC], labels_N, steepest)
        return cls(offset_C, hit_C, miss_C, steepest=steepest)

    def _slopes(self) -> list[Array]:
        return [np.asarray(self.hit_C), np.asarray(self.miss_C)]

    def _features(self, log_NC: Array, log_rest_NC: Array) -> list[Array]:
        return [log_NC, -log_rest_NC]

    @staticmethod
    def targets(hit_N: npt.NDArray[np.bool_]) -> Array:
        return hit_N.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Quadratic(Sigmoids):
    """Quadratic scaling, p_k ~ sigma(a_k s_k^2 + b_k s_k + c_k), a curve that never falls.

    s_k are the log-odds of class k.

    In binary benchmarks, quadratic scaling is the logistic regression on s and s^2. It may turn round and change the
    ranking of answers. Here its slope 2 a s + b stays within the limits of `Platt` over the log-odds of the fitted
    rows, from `low_C` to `high_C`. Beyond them the curve continues as a straight line. If the unrestricted optimum does
    not turn round, both are equal. a = 0 is `Platt` with targets 0 and 1. With more than two classes, each is fitted
    against the rest, then normalised. With two classes the curves are mirror images.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "quadratic")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "quadratic"

    low_C: npt.ArrayLike
    """Smallest log-odds of the fit."""
    high_C: npt.ArrayLike
    low_slope_C: npt.ArrayLike
    """Slope 2 a s + b at `low_C`."""
    high_slope_C: npt.ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "offset_C", frozen_array(self.offset_C, "offset_C", (None,)))
        for name in ("low_C", "high_C"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), name, (self.classes,)))
        for name in ("low_slope_C", "high_slope_C"):
            object.__setattr__(self, name, _slopes(getattr(self, name), name, self.classes))
        if (np.asarray(self.low_C) > np.asarray(self.high_C)).any():
            raise ValueError(f"low_C {self.low_C!r} is above high_C {self.high_C!r}; allowed is low_C <= high_C")

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        check_classes_have_rows(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
        odds_NC = log_odds(logits_NC)
        low_C, high_C = odds_NC.min(axis=0), odds_NC.max(axis=0)
        steepest = limit(logits_NC, labels_N)
        low_slope_C, high_slope_C, offset_C = cls._solve(_ramps(odds_NC, low_C, high_C), labels_N, steepest)
        return cls(offset_C, low_C, high_C, low_slope_C, high_slope_C, steepest=steepest)

    def _slopes(self) -> list[Array]:
        return [np.asarray(self.low_slope_C), np.asarray(self.high_slope_C)]

    def _features(self, log_NC: Array, log_rest_NC: Array) -> list[Array]:
        return _ramps(log_NC - log_rest_NC, np.asarray(self.low_C), np.asarray(self.high_C))

    @staticmethod
    def targets(hit_N: npt.NDArray[np.bool_]) -> Array:
        return hit_N.astype(np.float64)


def _ramps(odds_NC: Array, low_C: Array, high_C: Array) -> list[Array]:
    """Return two curves with sum s - low. Their slopes go evenly from (1, 0) at low to (0, 1) at high, and stay beyond.

    Their combinations with weights >= 0 are the quadratics of s that do not fall between low and high.
    """
    inside_NC = np.clip(odds_NC, low_C, high_C) - low_C
    square_NC = np.divide(inside_NC**2, 2 * (high_C - low_C), out=np.zeros_like(inside_NC), where=high_C > low_C)
    rising_NC = square_NC + np.maximum(odds_NC - high_C, 0.0)
    return [odds_NC - low_C - rising_NC, rising_NC]


def limit(logits_NC: Logits, labels_N: Labels) -> float:
    """Return the upper limit of a slope, the reciprocal of the lowest temperature.

    On separable rows a slope would grow without limit.
    """
    return 1 / range_of(Rows(logits_NC, labels_N))[0]


def log_odds(logits_NC: Logits) -> Array:
    """Compute ln q - ln(1 - q) of the softmax, N x C."""
    log_NC, log_rest_NC = log_pair(logits_NC.astype(np.float64, copy=False))
    return log_NC - log_rest_NC


def log_pair(logits_NC: Array) -> tuple[Array, Array]:
    """Compute ln q and ln(1 - q) of the softmax, each at least -708.4 (2.2e-308).

    For the top class 1 - q is the sum of the others, because a subtraction would lose all digits once q is 1 - 1e-17.
    """
    rows, top_N = np.arange(len(logits_NC)), logits_NC.argmax(axis=1)
    log_NC = logits_NC - logits_NC[rows, top_N][:, None]
    weight_NC = np.exp(log_NC)
    weight_NC[rows, top_N] = 0.0
    rest_N = weight_NC.sum(axis=1)
    total_N = 1.0 + rest_N
    log_NC -= np.log1p(rest_N)[:, None]
    weight_NC /= total_N[:, None]
    log_rest_NC = np.log1p(np.negative(weight_NC, out=weight_NC), out=weight_NC)
    with np.errstate(divide="ignore"):
        log_rest_NC[rows, top_N] = np.log(rest_N) - np.log1p(rest_N)
    return np.maximum(log_NC, LEAST, out=log_NC), np.maximum(log_rest_NC, LEAST, out=log_rest_NC)


def _slopes(value: npt.ArrayLike, name: str, classes: int) -> Array:
    array = frozen_array(value, name, (classes,))
    if (array < 0).any():
        raise ValueError(f"{name} holds {array.min()}; allowed are numbers >= 0")
    return array
