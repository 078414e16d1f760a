"""Logistic curves per class, normalised: Platt scaling, beta calibration and quadratic scaling."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from trueodds.calibrators.affine import UNSEEN, slope_notes
from trueodds.calibrators.base import Calibrator, Labels, Logits, check_seen, frozen_array
from trueodds.calibrators.dirichlet import LEAST
from trueodds.calibrators.fitting.newton import minimise
from trueodds.calibrators.fitting.objectives import Rows
from trueodds.calibrators.temperature import range_of
from trueodds.sums.inputs import Array, softmax


@dataclass(frozen=True, eq=False)
class Sigmoids(Calibrator):
    """p_k = sigma(slope_k . features_k + offset_k), each class against the rest, divided by the row's sum."""

    offset_C: npt.ArrayLike
    steepest: float | None = field(default=None, kw_only=True)
    """Upper limit of the slopes during the fit; None: there was none."""

    @abstractmethod
    def _slopes(self) -> list[Array]:
        """A slope per class for each feature, none negative."""

    @abstractmethod
    def _features(self, log_NC: Array, log_rest_NC: Array) -> list[Array]:
        """From ln q_k and ln(1 - q_k), each N x C, the features."""

    @staticmethod
    @abstractmethod
    def targets(hit_N: npt.NDArray[np.bool_]) -> Array:
        """Targets of a class's curve, for its own rows and for the rest."""

    @property
    def keeps_argmax(self) -> bool:
        return False

    @property
    def classes(self) -> int:
        return len(np.asarray(self.offset_C))

    @property
    def at_bound(self) -> bool:
        return bool(self._faults())

    def _faults(self) -> list[str]:
        return slope_notes(np.max(self._slopes(), axis=0), self.steepest)

    def _apply(self, logits_NC: Array) -> Array:
        eta_NC = np.broadcast_to(np.asarray(self.offset_C), logits_NC.shape)
        for slope_C, feature_NC in zip(self._slopes(), self._features(*log_pair(logits_NC)), strict=True):
            eta_NC = eta_NC + slope_C * feature_NC
        return softmax(-np.logaddexp(0.0, -eta_NC))  # exp(log sigma) over its sum, which cannot underflow as a whole

    @classmethod
    def _solve(cls, features: Sequence[Array], labels_N: Labels, steepest: float) -> Array:
        """(features + 1) x C, of features N x C: slopes, then offsets."""
        fitted = []
        for k in range(features[0].shape[1]):
            x_FN = np.stack([f[:, k] for f in features])
            # Standard scores: offset and slopes then hardly interact, whatever the logits' size
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
    """mean_n [ln(1 + exp eta_n) - t_n eta_n], eta = x . theta."""

    def __init__(self, x_FN: Array, target_N: Array) -> None:
        self._x_FN, self._target_N = x_FN, target_N
        self._hessian_FF = np.eye(len(x_FN))

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        eta_N = theta_P @ self._x_FN
        p_N = expit(eta_N)
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
    """p_k ~ sigma(a_k s_k + b_k), s_k = ln q_k - ln(1 - q_k) the log-odds of class k (Platt 1999).

    Platt's targets (n+ + 1) / (n+ + 2) and 1 / (n- + 2) in place of 1 and 0 keep the optimum finite. Slopes lie in
    [0, 1 / the least T of `temperature`]. More than two classes: each against the rest, then normalised (Zadrozny &
    Elkan 2002); for two the curves are mirror images, and this is Platt's method itself, affine:
    softmax(a z + (b / 2) (-1, 1)).

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
        check_seen(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
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
    """p_k ~ sigma(a_k ln q_k - b_k ln(1 - q_k) + c_k), a, b >= 0 (Kull, Silva Filho & Flach 2017, eq. 7).

    Each class against the rest, then normalised: that fits the whole vector of probabilities, and for two classes it is
    the paper's method itself (the curves are mirror images). The upper limit of `platt` stands in for infinity on
    separable rows.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.fit(logits, labels, "beta")([[2, 0]]).round(3)
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "beta"

    hit_C: npt.ArrayLike
    """a: the slope in ln q."""
    miss_C: npt.ArrayLike
    """b: the slope in -ln(1 - q)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "offset_C", frozen_array(self.offset_C, "offset_C", (None,)))
        object.__setattr__(self, "hit_C", _slopes(self.hit_C, "hit_C", self.classes))
        object.__setattr__(self, "miss_C", _slopes(self.miss_C, "miss_C", self.classes))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        check_seen(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
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
    """p_k ~ sigma(a_k s_k^2 + b_k s_k + c_k), s_k the log-odds of class k, a curve that never falls.

    Quadratic scaling as in binary benchmarks is the logistic regression on s and s^2, which may turn round and rank
    answers anew. Here its slope 2 a s + b lies within the limits of `platt` over the log-odds of the fitted rows, from
    `low_C` to `high_C`; beyond them the curve goes on straight. Where the unrestricted optimum does not turn round, the
    two are equal. a = 0 is `platt` with targets 0 and 1. More than two classes: each against the rest, then normalised;
    for two the curves are mirror images.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.fit(logits, labels, "quadratic")([[2, 0]]).round(3)
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "quadratic"

    low_C: npt.ArrayLike
    """The least log-odds of the fit."""
    high_C: npt.ArrayLike
    low_slope_C: npt.ArrayLike
    """2 a s + b at `low_C`."""
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
        check_seen(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
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
    """Two curves with sum s - low; their slopes go evenly from (1, 0) at low to (0, 1) at high, and stay beyond.

    Their combinations with weights >= 0 are the quadratics of s that do not fall between the two.
    """
    inside_NC = np.clip(odds_NC, low_C, high_C) - low_C
    square_NC = np.divide(inside_NC**2, 2 * (high_C - low_C), out=np.zeros_like(inside_NC), where=high_C > low_C)
    rising_NC = square_NC + np.maximum(odds_NC - high_C, 0.0)
    return [odds_NC - low_C - rising_NC, rising_NC]


def limit(logits_NC: Logits, labels_N: Labels) -> float:
    """Upper limit of a slope, the temperature's lower one turned over: separable rows would drive it to infinity."""
    return 1 / range_of(Rows(logits_NC, labels_N))[0]


def log_odds(logits_NC: Logits) -> Array:
    """ln q - ln(1 - q) of the softmax, N x C."""
    log_NC, log_rest_NC = log_pair(logits_NC.astype(np.float64, copy=False))
    return log_NC - log_rest_NC


def log_pair(logits_NC: Array) -> tuple[Array, Array]:
    """(ln q, ln(1 - q)) of the softmax, each at least -708.4 (2.2e-308).

    1 - q of the top class is the sum of the others: subtracting would leave nothing of it once q is 1 - 1e-17.
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
