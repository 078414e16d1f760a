"""Platt scaling of independent labels, with slopes and offsets that shrink to those of all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.calibrators.affine.label_shrinkage import FLATTEST, STEEPEST, Shrinkage
from trueodds.calibrators.affine.label_slopes import slope_intervals
from trueodds.calibrators.base import FitError, frozen_array
from trueodds.calibrators.checks import check_number
from trueodds.files import write_json
from trueodds.sums.frames import check_index, check_order
from trueodds.sums.inputs import Array
from trueodds.sums.label_matrix import check_label_logits, check_label_matrix, label_names

FOLDS = 5
FAR, FAR_SPREADS = 10.0, 5.0
"""Mean of the logits, and its ratio to their standard deviation, above which a fit warns."""


@dataclass(frozen=True, eq=False)
class MultilabelPlatt:
    """Platt scaling of independent labels, p_l = sigma(a_l z_l + b_l), with ln a_l = ln a + d_l and b_l = b + e_l.

    z_l is the logit of label l. All labels share a and b. The deviations d_l and e_l of label l have a normal prior
    with mean 0 and the spreads s_a and s_b. So a label with few rows, or few positives, stays near the shared curve,
    and one with many rows gets its own. The fit minimises

        sum over known (n, l) of [ln(1 + exp eta) - t eta] + sum_l [d_l^2 / (2 s_a^2) + e_l^2 / (2 s_b^2)]

    with eta = a_l z_nl + b_l. t are Platt's targets (n+ + 1) / (n+ + 2) and 1 / (n- + 2), from the counts of true and
    false pairs of all labels. Slopes lie in [.001, 20].

    The spreads maximise the marginal likelihood, in Laplace's approximation, by MacKay's updates:

        s_a^2 = (.3^2 + sum_l (d_l^2 + C_l)) / (1 + L)

    C_l is the posterior variance of d_l given a and b, and likewise for s_b. The prior counts as one more label with a
    deviation of .3. With one label there is no deviation, and the fit is that of `Platt`.

    Rows are the unit of `cross_fit`, because the labels of one row depend on each other.

    References:
        Platt 1999, Probabilistic outputs for support vector machines. MacKay 1992, Bayesian interpolation, eq. 4.18.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> z_NL = rng.normal(-1, 2, (500, 4))
        >>> labels_NL = (rng.random((500, 4)) < 1 / (1 + np.exp(-z_NL / 2))).astype(float)
        >>> calibrator = calibrators.fit(z_NL, labels_NL, multilabel=True)
        >>> calibrator([[2.0, 0, -2, 4]]).round(1)
        array([[0.7, 0.5, 0.3, 0.9]])
    """

    name: ClassVar[str] = "multilabel_platt"

    slope_L: npt.ArrayLike
    """Slope a_l of each label."""
    offset_L: npt.ArrayLike
    """Offset b_l of each label."""
    slope: float
    """Shared slope a, for a label without rows."""
    offset: float
    """Shared offset b."""
    slope_spread: float
    """Spread s_a of ln a_l; 0 with one label."""
    offset_spread: float
    """Spread s_b of b_l; 0 with one label."""
    labels: tuple[str, ...] = ()
    """Names of the labels; empty if the fit had none."""
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """Problems of the fit, one sentence each."""

    def __post_init__(self) -> None:
        slope_L = frozen_array(self.slope_L, "slope_L", (None,))
        if not len(slope_L) or (slope_L <= 0).any():
            raise ValueError(f"slope_L is {slope_L.tolist()}; allowed are numbers above 0, one for each label")
        object.__setattr__(self, "slope_L", slope_L)
        object.__setattr__(self, "offset_L", frozen_array(self.offset_L, "offset_L", (len(slope_L),)))
        check_number("slope", self.slope, FLATTEST / 2, 2 * STEEPEST)
        check_number("offset", self.offset, -1e300, 1e300)
        for name in ("slope_spread", "offset_spread"):
            check_number(name, getattr(self, name), 0, 1e300)
        object.__setattr__(self, "labels", tuple(self.labels))
        if self.labels:
            label_names(self.labels, len(slope_L))
        object.__setattr__(self, "warnings", tuple(self.warnings))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.name, self.slope, self.offset))

    @classmethod
    def fit(cls, logits: npt.ArrayLike, labels: npt.ArrayLike, *, classes: Sequence[object] | None = None) -> Self:
        """Fit on validation rows.

        Args:
            logits: Logits, shape (N, L). For probabilities, pass `scipy.special.logit(probabilities)`.
            labels: Truths, shape (N, L): 0, 1, and NaN if not known.
            classes: Names of the labels.

        Returns:
            The fitted calibrator.

        Raises:
            ValueError: The logits are not finite or are probabilities, or the labels are not 0, 1 and NaN.
            ConfigError: The names do not fit the columns, or data frames have them in different orders.
            FitError: All known truths are equal.
        """
        check_index(logits=logits, labels=labels)
        check_order(logits=logits, labels=labels, classes=None if classes is None else tuple(classes))
        z_NL = check_label_logits(logits)
        truth_NL = check_label_matrix(labels, (z_NL.shape[0], z_NL.shape[1]))
        return cls.fit_arrays(z_NL, truth_NL, () if classes is None else label_names(classes, z_NL.shape[1]))

    @classmethod
    def fit_arrays(cls, z_NL: Array, truth_NL: Array, texts: tuple[str, ...] = ()) -> Self:
        """Fit on logits and truths that are already checked, as `fit` does."""
        problem = Shrinkage(z_NL, truth_NL)
        found = problem.solve()
        slope_L = np.exp(found.theta_L2[:, 0])
        spread = (0.0, 0.0) if z_NL.shape[1] == 1 else found.spread
        return cls(
            slope_L,
            found.theta_L2[:, 1],
            float(np.exp(found.centre[0])),
            float(found.centre[1]),
            float(spread[0]),
            float(spread[1]),
            texts,
            warnings=_warnings(problem, truth_NL, slope_L, texts or tuple(map(str, range(z_NL.shape[1])))),
        )

    @property
    def count(self) -> int:
        """Number of labels."""
        return len(np.asarray(self.slope_L))

    def __call__(self, logits: npt.ArrayLike) -> Array:
        """Compute calibrated probabilities. Rows need not sum to 1.

        Args:
            logits: Logits, shape (N, L).

        Returns:
            Probabilities, shape (N, L), in float64.

        Raises:
            ValueError: The logits are not a finite N x L array, have another number of labels than the fit, or are
                probabilities.
            ConfigError: A data frame has the labels of the fit in another order.
        """
        check_order(calibrator=self.labels, logits=logits)
        z_NL = check_label_logits(logits)
        if z_NL.shape[1] != self.count:
            raise ValueError(f"logits has shape {z_NL.shape}; this calibrator was fitted on {self.count} labels")
        return self.apply(z_NL)

    def apply(self, z_NL: Array) -> Array:
        """Compute calibrated probabilities of logits that are already checked."""
        p_NL: Array = scipy.special.expit(np.asarray(self.slope_L) * z_NL + np.asarray(self.offset_L))
        return p_NL

    def predict_proba(self, logits: npt.ArrayLike) -> Array:
        """Compute calibrated probabilities, as calling the calibrator does. The name is scikit-learn's."""
        return self(logits)

    def save(self, path: str | Path) -> None:
        """Write the calibrator to a JSON file, which `trueodds.load` reads.

        Raises:
            OSError: The file cannot be written. An existing file is then unchanged.
        """
        write_json(Path(path), self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return `{"calibrator": "multilabel_platt", ...}`, which `from_json` restores exactly."""
        return {
            "calibrator": self.name,
            "slope_L": np.asarray(self.slope_L).tolist(),
            "offset_L": np.asarray(self.offset_L).tolist(),
            "slope": self.slope,
            "offset": self.offset,
            "slope_spread": self.slope_spread,
            "offset_spread": self.offset_spread,
            "labels": list(self.labels),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Restore the calibrator that `to_json` wrote.

        Raises:
            ValueError: The tree is not that of such a calibrator.
        """
        values = {key: value for key, value in tree.items() if key != "calibrator"}
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"calibrator {cls.name!r} cannot be restored from {sorted(values)}: {error}") from None


def cross_fit(logits: npt.ArrayLike, labels: npt.ArrayLike, *, folds: int = FOLDS, seed: int = 0) -> Array:
    """Compute calibrated probabilities of each row by a fit on the rows of the other folds.

    Args:
        logits: Logits, shape (N, L).
        labels: Truths, shape (N, L): 0, 1, and NaN if not known.
        folds: Number of folds. Whole rows are drawn into them.
        seed: Seed of the folds.

    Returns:
        Probabilities, shape (N, L).

    Raises:
        ValueError: `MultilabelPlatt.fit` does not accept the rows, or `folds` is less than 2.
        FitError: There are fewer rows than folds, or in the rows without some fold, all known truths are equal.
    """
    z_NL = check_label_logits(logits)
    return cross_fit_arrays(z_NL, check_label_matrix(labels, (z_NL.shape[0], z_NL.shape[1])), folds=folds, seed=seed)


def cross_fit_arrays(z_NL: Array, truth_NL: Array, *, folds: int = FOLDS, seed: int = 0) -> Array:
    """Compute what `cross_fit` computes, on logits and truths that are already checked.

    Raises:
        ValueError: `folds` is less than 2.
        FitError: There are fewer rows than folds, or in the rows without some fold, all known truths are equal.
    """
    check_number("folds", folds, 2, float("inf"), whole=True)
    if len(z_NL) < folds:
        raise FitError(
            f"{len(z_NL)} rows cannot be split into {folds} folds; give at least {folds} rows, or measure on rows of"
            " their own (--test on the command line)"
        )
    fold_N = np.random.default_rng(seed).permutation(len(z_NL)) % folds
    p_NL = np.empty(z_NL.shape)
    for fold in range(folds):
        inside_N = fold_N == fold
        if len(kinds := np.unique(truth_NL[~inside_N][~np.isnan(truth_NL[~inside_N])])) < 2:
            which = f"every known truth is {'true' if kinds[0] else 'false'}" if len(kinds) else "no truth is known"
            raise FitError(
                f"without the rows of fold {fold + 1} of {folds}, {which}; a fit needs truths of both kinds: give more"
                " rows, or measure on rows of their own (--test on the command line)"
            )
        p_NL[inside_N] = MultilabelPlatt.fit_arrays(z_NL[~inside_N], truth_NL[~inside_N]).apply(z_NL[inside_N])
    return p_NL


def _warnings(problem: Shrinkage, truth_NL: Array, slope_L: Array, names: Sequence[str]) -> tuple[str, ...]:
    """Return the problems of a fit."""
    found = []
    known_M = problem.z_NL[problem.known_NL]
    mean, spread = float(known_M.mean()), float(known_M.std())
    if abs(mean) > max(FAR, FAR_SPREADS * spread):
        found.append(
            f"The logits lie far from 0 (mean {mean:.4g}, standard deviation {spread:.3g}). The labels can then hardly"
            " have slopes of their own: subtract a constant from all logits, here and before the calibrator."
        )
    if unknown := [name for name, rows in zip(names, problem.rows_L, strict=True) if not rows]:
        found.append(f"{_label_list(unknown)} without a known truth: the shared curve is used.")
    flat = [name for name, slope in zip(names, slope_L, strict=True) if slope <= 2 * FLATTEST]
    if flat:
        found.append(f"{_label_list(flat)} with a slope of 0: higher logits do not mean more true rows.")
    if steep := [name for name, slope in zip(names, slope_L, strict=True) if slope >= 0.99 * STEEPEST]:
        found.append(
            f"{_label_list(steep)} with a slope at its upper end {STEEPEST:g}: the logits separate the rows, or are"
            " too small: multiply them by a constant, here and before the calibrator."
        )
    lower_L, upper_L = slope_intervals(problem.z_NL, truth_NL)
    told = [row for row in zip(names, lower_L, upper_L, strict=True) if row[0] not in flat]
    if untold := [name for name, low, high in told if low <= 0 <= high]:
        found.append(
            f"{_label_list(untold)} with a slope whose 95% interval includes 0: these rows do not show that higher"
            " logits mean more true rows. Give more rows, or check that the labels are in the order of the logits."
        )
    if against := [name for name, _, high in told if high < 0]:
        found.append(
            f"{_label_list(against)} with a slope below 0: higher logits mean fewer true rows. Check that the labels"
            " are in the order of the logits."
        )
    return tuple(found)


def _label_list(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"label{'s' if len(names) > 1 else ''} {', '.join(names[:5])}{more}"
