"""Affine maps of the logits, fitted by likelihood: bias-corrected temperature, vector and matrix scaling.

All use centred logits z - mean_k z_k. The softmax does not depend on a shift of a row, but softmax(W z + b) does,
unless W is a multiple of I. Centring makes the result independent of the shift (a service that sends z - max z gets the
same result) and keeps the map affine. All are fitted on centred logits divided by the temperature of least NLL, so that
bounds and penalties do not depend on the logits' scale.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import (
    Calibrator,
    FitError,
    Labels,
    Logits,
    check_classes_have_rows,
    class_list,
    frozen_array,
    softmax_over,
)
from trueodds.calibrators.checks import Number, OptionCheck
from trueodds.calibrators.fitting.multinomial import Multinomial, check_matrix_size
from trueodds.calibrators.fitting.objectives import Rows
from trueodds.calibrators.temperature import SHRINKAGE, Bound, bound_notes, check_temperature, range_of, solve_nll
from trueodds.sums.inputs import Array

UNSEEN = "use 'temperature', 'structured_vector' or 'structured_matrix', or add rows of that class"
PENALTY = Number(0.0, 1e12, optional=True)
STEEPEST = 20.0
"""Upper limit of a factor of `vector`, in units of 1 / T."""
LARGEST = 1e5
"""Largest feature. Beyond it the softmax is saturated everywhere, and the loss has no slope to follow."""


@dataclass(frozen=True, eq=False)
class Affine(Calibrator):
    """Affine calibrators, p = softmax(W z~ + b) with z~ = z - mean_k z_k."""

    keeps_argmax = False

    @abstractmethod
    def _weights(self) -> Array:
        """Return W: a number, its diagonal (C,) or the whole matrix (C, C)."""

    @property
    @abstractmethod
    def _bias_C(self) -> Array: ...

    @property
    def classes(self) -> int:
        return len(self._bias_C)

    def _apply(self, logits_NC: Array) -> Array:
        weights, eta_NC = self._weights(), centre_logits(logits_NC)
        if weights.ndim == 2:
            eta_NC = eta_NC @ weights.T
        else:
            eta_NC *= weights
        eta_NC += self._bias_C
        return softmax_over(eta_NC)

    def affine(self, classes: int) -> tuple[Array, Array] | None:
        weights = self._weights()
        matrix_CC = weights if weights.ndim == 2 else np.diag(np.broadcast_to(weights, self.classes))
        return matrix_CC - matrix_CC.mean(axis=1, keepdims=True), self._bias_C.copy()


@dataclass(frozen=True, eq=False)
class BiasCorrectedTemperature(Affine):
    """Bias-corrected temperature scaling, p = softmax(z / T + b), mean b = 0, T in the range of `Temperature`.

    T and b together minimise the NLL, the prior of `Temperature` and `intercept/N |b|^2`. The problem is convex in
    (1/T, b) and solved to a gradient of 1e-9. shrinkage = intercept = 0 is the paper's formula. Options of `fit`:

    - shrinkage: Number of wrong pseudo-rows in the prior (2).
    - intercept: Strength of the penalty on b (1).

    References:
        Alexandari et al. 2020, Maximum likelihood with bias-corrected calibration, section 3.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "bias_corrected_temperature")([[2, 0]]).round(3)
        array([[0.755, 0.245]])
    """

    name: ClassVar[str] = "bias_corrected_temperature"
    checks: ClassVar[Mapping[str, OptionCheck]] = {"shrinkage": Number(0.0, 1e6), "intercept": Number(0.0, 1e6)}
    is_regularised: ClassVar[bool] = True

    temperature: float
    bias_C: npt.ArrayLike
    bound: Bound = None
    """End of its range at which T stopped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature, self.bound)
        object.__setattr__(self, "bias_C", frozen_array(self.bias_C, "bias_C", (None,)))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels, *, shrinkage: float = SHRINKAGE, intercept: float = 1.0) -> Self:
        cls.check_values(shrinkage=shrinkage, intercept=intercept)
        check_classes_have_rows(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
        scale, x_NC, prior = scale_logits(logits_NC, labels_N, shrinkage)
        classes = x_NC.shape[1]
        penalty_P = np.append(0.0, np.full(classes, intercept / len(labels_N)))
        problem = Multinomial(x_NC, labels_N, "scalar", penalty_P)
        problem.shrink(prior, scale)
        lowest, highest = range_of(Rows(logits_NC, labels_N))
        (beta,), bias_C = problem.solve(scale / highest, scale / lowest, cls.name)
        bound: Bound = "lower" if beta >= scale / lowest else "upper" if beta <= scale / highest else None
        return cls(float(np.clip(scale / beta, lowest, highest)), bias_C, bound)

    def _fit_warnings(self) -> list[str]:
        return bound_notes(self.temperature, self.bound, "NLL")

    def _weights(self) -> Array:
        return np.array(1 / self.temperature)

    @property
    def _bias_C(self) -> Array:
        return np.asarray(self.bias_C)


@dataclass(frozen=True, eq=False)
class Vector(Affine):
    """Vector scaling, p = softmax(w z~ + b), with a factor and an offset per class.

    Each w_k lies in [0, 20 / T], where T is the temperature of least NLL. A negative factor would reverse a class's
    logit, and without an upper limit separable rows have no optimum. The problem is convex and solved to a gradient of
    1e-9. There are two numbers per class and no regularisation. With fewer than about 50 rows per class prefer
    'structured_vector'.

    References:
        Guo et al. 2017, On calibration of modern neural networks, section 4.2.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "vector")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "vector"

    weight_C: npt.ArrayLike
    bias_C: npt.ArrayLike
    steepest: float | None = None
    """Upper limit of the factors during the fit; None: there was none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "weight_C", frozen_array(self.weight_C, "weight_C", (None,)))
        object.__setattr__(self, "bias_C", frozen_array(self.bias_C, "bias_C", (len(np.asarray(self.weight_C)),)))

    @classmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        check_classes_have_rows(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
        scale, x_NC, _ = scale_logits(logits_NC, labels_N)
        weight_C, bias_C = Multinomial(x_NC, labels_N, "diagonal").solve(0.0, STEEPEST, cls.name)
        return cls(weight_C / scale, bias_C, STEEPEST / scale)

    def _fit_warnings(self) -> list[str]:
        return slope_notes(self._weights(), self.steepest)

    def _weights(self) -> Array:
        return np.asarray(self.weight_C)

    @property
    def _bias_C(self) -> Array:
        return np.asarray(self.bias_C)


@dataclass(frozen=True, eq=False)
class Matrix(Affine):
    """Matrix scaling, p = softmax(W z~ + b), with off-diagonal and intercept regularisation (ODIR).

    The fit minimises the NLL + off_diagonal / (C (C-1)) sum_{j != k} (T W_jk)^2 + intercept / C sum_k b_k^2, where T is
    the temperature of least NLL. The problem is convex and solved to a gradient of 1e-9. The diagonal is free. Options
    of `fit`:

    - off_diagonal: Strength of the penalty on the off-diagonal entries (C^2 (C-1)^2 / N).
    - intercept: Strength of the penalty on the offsets (C^2 / N).

    The defaults give every entry the weight of Berta et al. (see `StructuredMatrix`). A strength that does not grow
    with C overfits: without regularisation, C = 100 classes have 10,100 parameters.

    References:
        Kull et al. 2019, Beyond temperature scaling, section 3.3.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "matrix")([[2, 0]]).round(3)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "matrix"
    checks: ClassVar[Mapping[str, OptionCheck]] = {"off_diagonal": PENALTY, "intercept": PENALTY}

    weight_CC: npt.ArrayLike
    bias_C: npt.ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = len(np.asarray(self.bias_C))
        object.__setattr__(self, "weight_CC", frozen_array(self.weight_CC, "weight_CC", (classes, classes)))
        object.__setattr__(self, "bias_C", frozen_array(self.bias_C, "bias_C", (classes,)))

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        off_diagonal: float | None = None,
        intercept: float | None = None,
    ) -> Self:
        cls.check_values(off_diagonal=off_diagonal, intercept=intercept)
        check_matrix_size(logits_NC.shape[1], cls.name)
        check_classes_have_rows(labels_N, logits_NC.shape[1], cls.name, UNSEEN)
        penalty_P = odir(len(logits_NC), logits_NC.shape[1], off_diagonal, intercept)
        scale, x_NC, _ = scale_logits(logits_NC, labels_N)
        weights, bias_C = Multinomial(x_NC, labels_N, "full", penalty_P).solve(-np.inf, np.inf, cls.name)
        return cls(weights.reshape(x_NC.shape[1], -1) / scale, bias_C)

    def _weights(self) -> Array:
        return np.asarray(self.weight_CC)

    @property
    def _bias_C(self) -> Array:
        return np.asarray(self.bias_C)


def slope_notes(slope_C: Array, steepest: float | None) -> list[str]:
    """Return notes for the user about classes whose slope is not positive, or stopped at `steepest`."""
    notes = []
    for turned_C, what in ((slope_C == 0, "is left out"), (slope_C < 0, "counts with a negative factor")):
        if turned_C.any():
            notes.append(
                f"The logit of class {class_list(turned_C)} has the wrong sign on the rows of the fit: it is lower"
                f" where the class is right, and {what}. Check that logits and labels belong together, or use more"
                " rows."
            )
    if steepest is not None and (steep_C := slope_C >= steepest).any():
        notes.append(
            f"The curve of class {class_list(steep_C)} stopped at the steepest slope {steepest:g}: the rows of the fit"
            " separate it from the rest. Use 'temperature', or more rows."
        )
    return notes


def centre_logits(logits_NC: Array) -> Array:
    """Compute z - mean_k z_k. The maximum is subtracted first, so that a large common offset costs no precision."""
    shifted_NC: Array = logits_NC - logits_NC.max(axis=1, keepdims=True)
    shifted_NC -= shifted_NC.mean(axis=1, keepdims=True)
    return shifted_NC


def scale_logits(logits_NC: Logits, labels_N: Labels, shrinkage: float = 0.0) -> tuple[float, Array, float]:
    """Return T, the centred logits / T and the prior's weight per row.

    T is the temperature of least NLL under this shrinkage.
    """
    rows = Rows(logits_NC, labels_N)
    temperature = solve_nll(rows, shrinkage)[0]
    features_NC: Array = centre_logits(logits_NC.astype(np.float64, copy=False))
    features_NC /= temperature
    if not np.abs(features_NC).max() <= LARGEST:
        raise FitError(
            f"logits reach {np.abs(logits_NC).max():.3g}, {LARGEST:g} or more after division by T = {temperature:g};"
            " this calibrator cannot be fitted on them; use 'temperature', or scale the logits down"
        )
    return temperature, features_NC, rows.prior


def odir(rows: int, classes: int, off_diagonal: float | None, intercept: float | None) -> Array:
    """Return the penalty per parameter of a full matrix and its offsets. None takes the default of `Matrix`."""
    pairs = classes * max(classes - 1, 1)
    off_diagonal = pairs**2 / rows if off_diagonal is None else off_diagonal
    intercept = classes**2 / rows if intercept is None else intercept
    matrix_CC = np.full((classes, classes), off_diagonal / pairs)
    np.fill_diagonal(matrix_CC, 0.0)
    return np.concatenate([matrix_CC.ravel(), np.full(classes, intercept / classes)])
