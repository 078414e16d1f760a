"""Class shares of answers without labels, if only the shares have changed since the calibration (prior shift)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.labelling.mixture_test import MixtureTest, mixture_test
from trueodds.metrics.labelling.reference_calibrator import ReferenceCalibrator, mixture_shares
from trueodds.sums.inputs import Array, as_numbers, check_labels, check_level, check_probabilities, is_number, is_whole
from trueodds.texts import plural

FEWEST_ROWS = 20
"""Smallest number of reference rows of each class. With fewer, the normal law of their mean score is too rough."""
FEWEST_ANSWERS = 50
MOST_CLASSES = 100
ERROR = 0.05
"""Significance level of the test. If p(x | y) is unchanged, about this share of the reports is silent."""
PSEUDO_ROWS = 4.0
"""Reference rows of each class that may lie as those of all classes do.

They keep the variance of a class above 0 if its rows happen to have equal scores, as z^2 does in Wilson's interval.
"""
WORST_CONDITION = 1e6
"""Condition number of the matrix of mean scores from which the scores do not tell the classes apart."""


@dataclass(frozen=True)
class PriorShare:
    """Share of a class among answers without a label, with its interval. None: the scores do not determine it.

    Examples:
        >>> p, rows = [[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.1, 0.9]], [[40, 5], [30, 15], [15, 30], [5, 40]]
        >>> one = metrics.prior_shift_of_scores(p, [80, 60, 40, 20], rows).em[1]
        >>> round(one.value, 2), one.lower < one.value < one.upper
        (0.12, True)
    """

    value: float | None
    lower: float | None
    upper: float | None


NO_SHARE = PriorShare(None, None, None)


@dataclass(frozen=True)
class PriorShift:
    """Class shares of answers under prior shift, or why there are none.

    Examples:
        >>> p, rows = [[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.1, 0.9]], [[40, 5], [30, 15], [15, 30], [5, 40]]
        >>> shift = metrics.prior_shift_of_scores(p, [4, 3, 2, 1], rows)
        >>> shift.refusal, shift.em
        ('there are 10 answers; at least 50 are needed', ())
    """

    answers: int
    reference_rows: tuple[int, ...]
    """Reference rows of each class."""
    em: tuple[PriorShare, ...]
    """Shares by expectation maximisation (EM), by class. Empty if nothing can be said."""
    bbse: tuple[PriorShare, ...]
    """Shares by the confusion matrix (BBSE), by class. Empty if nothing can be said."""
    test: MixtureTest | None
    """Test that the reference's score distributions can give those of the answers. None: it was not possible."""
    refusal: str | None
    """Why nothing can be said. None: the shares are there."""
    calibrator: ReferenceCalibrator | None
    """Calibrator of the EM, fitted on the reference rows."""

    @property
    def reference_shares(self) -> Array:
        """Share of each class among the reference rows."""
        rows_C = np.array(self.reference_rows, np.float64)
        share_C: Array = rows_C / rows_C.sum()
        return share_C

    def correct(self, probabilities: npt.ArrayLike, *, label: int | None = None, share: float | None = None) -> Array:
        """Return probabilities that hold under the new shares: p'(y | x) ~ p(y | x) w_y / pi_y.

        Here p is calibrated by `calibrator`, pi are the shares of the reference, and w those of the EM.

        Args:
            probabilities: Served probabilities, shape (N, C).
            label: Class whose share is replaced; the others keep their proportions.
            share: That share, in [0, 1].

        Raises:
            ValueError: Nothing can be said about the shares, the input holds no probabilities of these classes, or only
                one of `label` and `share` is given, or one of them is not allowed.
        """
        if self.calibrator is None or not self.em:
            raise ValueError(f"there are no class shares: {self.refusal}")
        p_NC = check_probabilities(probabilities)
        if p_NC.shape[1] != len(self.em):
            raise ValueError(
                f"probabilities have {plural(p_NC.shape[1], 'class', 'classes')}, the shares {len(self.em)}; give the"
                " same classes in the same order"
            )
        if (label is None) != (share is None):
            raise ValueError(f"label is {label!r} and share is {share!r}; give both, or neither")
        w_C = np.array([one.value for one in self.em], np.float64)
        if label is not None and share is not None:
            if not (is_whole(label) and 0 <= label < len(w_C)):
                raise ValueError(f"label is {label!r}; allowed are the class indices 0..{len(w_C) - 1}")
            if not (is_number(share) and 0 <= share <= 1):
                raise ValueError(f"share is {share!r}; allowed is [0, 1], such as 0.1")
            others = 1 - w_C[label]
            w_C = w_C * (1 - share) / others if others > 0 else (1 - share) * self.reference_shares
            w_C[label] = share
            w_C /= w_C.sum()
        joint_NC: Array = self.calibrator(p_NC) * (w_C / self.reference_shares)
        joint_NC /= np.maximum(joint_NC.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return joint_NC


def prior_shift(
    probabilities: npt.ArrayLike,
    reference_probabilities: npt.ArrayLike,
    reference_labels: npt.ArrayLike,
    *,
    level: float = 0.95,
) -> PriorShift:
    """Estimate the class shares of answers without labels, assuming that p(x | y) is that of the reference rows.

    **EM** (Saerens et al.). The served probabilities are calibrated on the reference rows by a temperature and a bias
    of each class (BCTS, Alexandari et al.), which gives p. With the reference's shares pi, the shares w of the answers
    maximise

        sum over answers of log sum_y w_y p(y | x) / pi_y

    **BBSE** (Lipton et al.). With the predicted class s, q(s) among the answers and the confusion matrix
    A(s, y) = p(s | y) of the reference rows, w solves q = A w. Negative shares become 0.

    **Intervals.** Let phi(x) be the predicted class as a unit vector (BBSE), or the corrected probabilities of the EM.
    Its means are mu among the answers, and the columns of A in the classes of the reference. With psi = A^-1 phi, the
    share of class k is estimated by w_k = mean of psi_k. It has mean c for a true share c. Its variance is

        V(c) = sum_j w_j v_j / m + sum_j w_j^2 v_j / n_j,    v_j = variance of psi_k in class j,    w_k = c

    with m answers and n_j reference rows of class j. The interval is {c: (w_k - c)^2 <= z^2 V(c)}, as Fieller's is. A
    w_k outside [0, 1] counts as the nearest end. So it covers the reference rows as well as the answers, and it does
    not need the probabilities to be calibrated. It is for the share among these answers, widened where necessary to
    contain the EM's own value.

    **Test.** Nothing is said if the answers' distribution of scores is no mixture of those of the reference's classes
    (see `mixture_test`). A change of p(x | y) that looks like a mixture cannot be seen, so the assumption can never be
    tested fully.

    Args:
        probabilities: Served probabilities of the answers without a label, shape (N, C).
        reference_probabilities: Served probabilities of labelled rows from before the shift, shape (R, C): those that
            fitted the calibrator, or other rows that did not train the model.
        reference_labels: Their true classes, shape (R,).
        level: Confidence level of each interval, inside (0, 1). It holds for each class, not for all at once.

    Returns:
        The shares. They are missing, and `refusal` says why, if there are fewer than 20 reference rows of a class, or
        fewer than 50 answers, if the test rejects at 5% or is impossible, or if the scores do not tell the classes
        apart.

    Raises:
        ValueError: The input holds no probabilities, their classes differ, labels are not class indices, there are more
            than 100 classes, or `level` is outside (0, 1).

    References:
        Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities.
        Lipton, Wang, Smola (2018), Detecting and correcting for label shift with black box predictors. Alexandari,
        Kundaje, Shrikumar (2020), Maximum likelihood with bias-corrected calibration is hard-to-beat at label shift
        adaptation. Tian, Zhang, Zhao (2023), ELSA: Efficient label shift adaptation (such psi).

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> def rows(n, positives):
        ...     labels = (rng.random(n) < positives).astype(int)
        ...     p = 1 / (1 + np.exp(-rng.normal(4 * labels - 2, 2)))  # calibrated for 50% positives
        ...     return np.stack([1 - p, p], axis=1), labels
        >>> shift = metrics.prior_shift(rows(2000, 0.2)[0], *rows(2000, 0.5))
        >>> one = shift.em[1]
        >>> round(one.value, 1), one.lower < 0.2 < one.upper, round(float(shift.reference_shares[1]), 1)
        (0.2, True, 0.5)
    """
    p_NC, reference_RC = check_probabilities(probabilities), check_probabilities(reference_probabilities)
    if p_NC.shape[1] != reference_RC.shape[1]:
        raise ValueError(
            f"probabilities have {p_NC.shape[1]} classes, those of the reference {reference_RC.shape[1]}; give the same"
            " classes in the same order"
        )
    labels_R = check_labels(reference_labels, len(reference_RC), reference_RC.shape[1], "reference_labels")
    rows_SC = np.zeros((len(p_NC) + len(reference_RC), p_NC.shape[1]))
    rows_SC[len(p_NC) + np.arange(len(labels_R)), labels_R] = 1
    answers_S = np.concatenate([np.ones(len(p_NC)), np.zeros(len(labels_R))])
    return prior_shift_of_scores(np.concatenate([p_NC, reference_RC]), answers_S, rows_SC, level=level)


def prior_shift_of_scores(
    probabilities: npt.ArrayLike, answers: npt.ArrayLike, reference: npt.ArrayLike, *, level: float = 0.95
) -> PriorShift:
    """Estimate `prior_shift` from counts by score.

    The scores may be cells of probabilities, each with one probability that stands for it. The estimates and intervals
    then stay valid, because they compare the answers and the reference by the same cells.

    Args:
        probabilities: Probabilities of each score, shape (S, C).
        answers: Number of answers without a label with each score, shape (S,).
        reference: Number of reference rows with each score and class, shape (S, C).
        level: Confidence level of each interval, inside (0, 1).

    Raises:
        ValueError: As `prior_shift` does; or counts are negative, or have other shapes.

    Examples:
        >>> p, rows = [[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.1, 0.9]], [[40, 5], [30, 15], [15, 30], [5, 40]]
        >>> shift = metrics.prior_shift_of_scores(p, [90, 90, 90, 90], rows)
        >>> [round(one.value, 2) for one in shift.bbse], shift.test.cells
        ([0.5, 0.5], 4)
    """
    check_level(level)
    p_SC = np.clip(check_probabilities(probabilities).astype(np.float64), 0.0, 1.0)
    answers_S = as_numbers(answers, "answers").astype(np.float64)
    rows_SC = as_numbers(reference, "reference").astype(np.float64)
    classes = p_SC.shape[1]
    if not 2 <= classes <= MOST_CLASSES:
        raise ValueError(f"there are {plural(classes, 'class', 'classes')}; allowed are 2 to {MOST_CLASSES}")
    if answers_S.shape != (len(p_SC),) or rows_SC.shape != p_SC.shape:
        raise ValueError(
            f"answers have shape {answers_S.shape} and the reference {rows_SC.shape}; expected ({len(p_SC)},) and"
            f" {p_SC.shape}, a count for each score"
        )
    for name, counts in (("answers", answers_S), ("reference", rows_SC)):
        if (bad := counts[~(np.isfinite(counts) & (counts >= 0))]).size:
            raise ValueError(f"{name} holds the count {bad[0]:g}; allowed are finite numbers from 0 on")
    return _Estimation(p_SC, answers_S, rows_SC, float(scipy.special.ndtri((1 + level) / 2))).result()


class _Estimation:
    """Counts by score, and the estimation of shares from them."""

    def __init__(self, p_SC: Array, answers_S: Array, rows_SC: Array, z: float) -> None:
        self._p_SC, self._answers_S, self._rows_SC, self._z = p_SC, answers_S, rows_SC, z
        self._rows_C, self._answers = rows_SC.sum(axis=0), answers_S.sum()

    def result(self) -> PriorShift:
        if (refusal := self._too_few()) is not None:
            return self._refuse(refusal)
        calibrator = ReferenceCalibrator.fit(self._p_SC, self._rows_SC)
        ratio_SC = calibrator(self._p_SC) * (self._rows_C.sum() / self._rows_C)
        w_C = mixture_shares(ratio_SC, self._answers_S, self._rows_C / self._rows_C.sum())
        test = mixture_test(self._p_SC, self._answers_S, self._rows_SC, w_C)
        if test is None:
            return self._refuse("the scores have too few different values to test that p(x | y) is unchanged")
        if test.p_value < ERROR:
            return self._refuse(
                "p(x | y) has changed as well: no shares of the reference's classes give the answers' distribution of"
                f" scores (p = {test.p_value:.2g})",
                test,
            )
        # A share of 0 would make the scores of its class vanish.
        inside_C = (w_C * self._answers + 1) / (self._answers + len(w_C))
        phi_SC = ratio_SC * inside_C
        em = self._shares(phi_SC / phi_SC.sum(axis=1, keepdims=True), w_C, w_C)
        if em is None:
            return self._refuse("the scores of the reference rows do not tell the classes apart", test)
        bbse = self._shares(np.eye(len(w_C))[self._p_SC.argmax(axis=1)], None, w_C)
        return self._with(em=em, bbse=bbse or (NO_SHARE,) * len(w_C), test=test, calibrator=calibrator)

    def _too_few(self) -> str | None:
        if self._answers < FEWEST_ANSWERS:
            return f"there are {plural(int(self._answers), 'answer')}; at least {FEWEST_ANSWERS} are needed"
        few = int(self._rows_C.argmin())
        if self._rows_C[few] < FEWEST_ROWS:
            rows = plural(int(self._rows_C[few]), "reference row")
            return f"class {few} has {rows}; each class needs at least {FEWEST_ROWS}"
        return None

    def _shares(self, phi_SC: Array, value_C: Array | None, w_C: Array) -> tuple[PriorShare, ...] | None:
        """Return the shares whose scores are `phi_SC`; None if these do not tell the classes apart.

        Args:
            phi_SC: Scores that sum to 1.
            value_C: Own estimate. None: the solution of the moments, without negative shares.
            w_C: Shares for the variance.
        """
        mean_CC = phi_SC.T @ (self._rows_SC / self._rows_C)
        if np.linalg.cond(mean_CC) > WORST_CONDITION:
            return None
        psi_SC = np.linalg.solve(mean_CC, phi_SC.T).T
        solved_C = self._answers_S @ psi_SC / self._answers
        if value_C is None:
            value_C = np.maximum(solved_C, 0)
            value_C = value_C / value_C.sum()
        spread_CC = self._variances(psi_SC)
        return tuple(
            self._share(k, float(solved_C[k]), float(value_C[k]), w_C, spread_CC[:, k]) for k in range(len(w_C))
        )

    def _variances(self, psi_SC: Array) -> Array:
        """Return the variance of psi_k in each class j, [j, k], with `PSEUDO_ROWS` of all classes in each."""
        share_SC = self._rows_SC / self._rows_C
        weight_C = PSEUDO_ROWS / (self._rows_C + PSEUDO_ROWS)
        share_SC = share_SC * (1 - weight_C) + share_SC.mean(axis=1, keepdims=True) * weight_C
        mean_CC = share_SC.T @ psi_SC
        variance_CC: Array = np.maximum(share_SC.T @ psi_SC**2 - mean_CC**2, 0.0)
        return variance_CC

    def _share(self, k: int, solution: float, value: float, w_C: Array, v_C: Array) -> PriorShare:
        """Return the share of class k with the c of (solution - c)^2 <= z^2 V(c) inside [0, 1].

        A solution outside [0, 1] counts as its nearest end. Otherwise far ones would leave no c, or next to none.
        """
        solution = min(max(solution, 0.0), 1.0)
        others_C = np.where(np.arange(len(w_C)) == k, 0.0, np.maximum(w_C, 1e-12))
        u_C = others_C / others_C.sum()
        mean, square = float(u_C @ v_C), float((u_C**2 * v_C / self._rows_C).sum())
        z2, m, own = self._z**2, self._answers, v_C[k] / self._rows_C[k]
        c_G = np.linspace(0, 1, 2001)
        a = 1 - z2 * (own + square)
        b = -2 * solution - z2 * ((v_C[k] - mean) / m - 2 * square)
        c = solution**2 - z2 * (mean / m + square)
        ends = [root.real for root in np.roots([a, b, c]) if abs(root.imag) < 1e-12 and 0 <= root.real <= 1]
        inside_G = c_G[(a * c_G + b) * c_G + c <= 0]
        candidates = [value, *ends, *inside_G]
        return PriorShare(value, float(min(candidates)), float(max(candidates)))

    def _refuse(self, refusal: str, test: MixtureTest | None = None) -> PriorShift:
        return self._with(refusal=refusal, test=test)

    def _with(
        self,
        em: tuple[PriorShare, ...] = (),
        bbse: tuple[PriorShare, ...] = (),
        test: MixtureTest | None = None,
        refusal: str | None = None,
        calibrator: ReferenceCalibrator | None = None,
    ) -> PriorShift:
        rows = tuple(int(n) for n in self._rows_C)
        return PriorShift(int(self._answers), rows, em, bbse, test, refusal, calibrator)
