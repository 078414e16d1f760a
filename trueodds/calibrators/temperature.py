"""Temperature scaling (Guo et al. 2017, section 4.2), by the NLL solved exactly or by another objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from trueodds.calibrators.base import Calibrator, Labels, Logits, row_blocks, softmax_over
from trueodds.calibrators.checks import Check, Choice, Number, check_choice
from trueodds.calibrators.fitting import objectives
from trueodds.sums.inputs import Array

LOWEST, HIGHEST = 0.05, 20.0
SHRINKAGE = 2.0
"""Pseudo-errors. With 1, fits on 50 rows with 2 wrong ones expected were up to .06 nats worse than no calibration in
200 draws (logits of two classes 1.5 times too large); benchmarks/selection.py measures 2."""
GRID = np.arange(1, 101) / 10
"""T = .1, .2, .. 10: the grid of the focal-calibration papers."""
SCAN = np.geomspace(LOWEST, HIGHEST, 33)
WARM = 1 << 17
"""Values on which a first temperature is found before all rows are read: that leaves three Newton steps for them."""

Objective = Literal["nll", "brier", "ece", "adaptive_ece", "sb_ece", "sb_ece_label"]
Bound = Literal["lower", "upper"] | None


@dataclass(frozen=True, eq=False)
class Temperature(Calibrator):
    """p = softmax(z / T), T in [.05, 20].

    objective "nll" (default): sum_n -ln p_n,y + (shrinkage / e) mean_n sum_k -q_nk ln p_nk, q = softmax(z), e the share
    of wrong rows that the net expects, mean (1 - max q), or the share seen if that is larger. The second term is the
    conjugate prior of the exponential family softmax(beta z), beta = 1/T (Diaconis & Ylvisaker 1979, Annals of
    Statistics 7, 269): pseudo-rows that the net labels itself, so many that `shrinkage` (2) wrong ones are expected
    among them. It keeps rows with few or no errors from sharpening the net without end, and counts for nothing beside
    many; shrinkage = 0 is Guo et al.'s formula. Convex in beta; with the prior's weight w = shrinkage / (e N) a row the
    derivative is mean_n [(1 + w) E_p z_n - z_n,y - w E_q z_n], whose root is found by Newton steps kept inside a
    bracket, to a relative 1e-12. The other objectives are published recipes, without a prior.
    "brier": the Brier score, not convex: the best of 33 temperatures in geometric steps, then the root of its
    derivative between that one's neighbours. "ece", "adaptive_ece": the best of T = .1, .2, .. 10 by the top label's
    ECE with equal-width or equal-count bins, the smallest T where several are best (Mukhoti et al. 2020, section 4).
    "sb_ece" and "sb_ece_label": the soft-binned ECE by bins and by rows (Karandikar et al. 2021, eqs. 11 and 12),
    scanned and refined as "brier", to 1e-6.

    Options of fit: `shrinkage` of "nll", `bins` (15) of the four ECE objectives, `softness` (.01; the paper's T of the
    memberships) and `order` (2; its p) of the soft-binned ones.

    Without a wrong validation row the other objectives, and the NLL without shrinkage, have no minimum (they fall for
    ever as T -> 0); without information in the logits, none either (T -> infinity). The end of the range or grid that
    was hit is then recorded in `bound`. Logits that are equal in every row leave T = 1.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.fit(logits, labels, "temperature")([[2, 0]]).round(3)
    array([[0.755, 0.245]])
    """

    name: ClassVar[str] = "temperature"
    held: ClassVar[bool] = True
    checks: ClassVar[Mapping[str, Check]] = {
        "objective": Choice(objectives.NAMES),
        "shrinkage": Number(0.0, 1e6),
        "bins": Number(1, 1000, whole=True),
        "softness": Number(1e-6, 10.0),
        "order": Number(1.0, 10.0),
    }
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "shrinkage": ("nll",),
        "bins": ("ece", "adaptive_ece", "sb_ece", "sb_ece_label"),
        "softness": ("sb_ece", "sb_ece_label"),
        "order": ("sb_ece", "sb_ece_label"),
    }

    temperature: float
    bound: Bound = None
    objective: Objective = "nll"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not LOWEST <= self.temperature <= HIGHEST:
            raise ValueError(f"temperature is {self.temperature}; allowed is [{LOWEST}, {HIGHEST}]")
        check_choice("objective", self.objective, objectives.NAMES)
        if self.bound is not None:
            check_choice("bound", self.bound, ("lower", "upper"))

    @property
    def keeps_argmax(self) -> bool:
        return True

    @property
    def at_bound(self) -> bool:
        return self.bound is not None

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        objective: Objective = "nll",
        shrinkage: float = SHRINKAGE,
        bins: int = 15,
        softness: float = 0.01,
        order: float = 2.0,
    ) -> Self:
        cls.check_values(objective=objective, shrinkage=shrinkage, bins=bins, softness=softness, order=order)
        if _alike(logits_NC):
            return cls(1.0, None, objective)
        rows = objectives.Rows(logits_NC, labels_N)
        if objective == "nll":
            return cls(*solve_nll(rows, shrinkage))
        if objective == "brier":
            return cls(*_scan_brier(rows), objective)
        if objective in ("sb_ece", "sb_ece_label"):
            soft = objectives.sb_ece if objective == "sb_ece" else objectives.sb_ece_label
            return cls(*_scan_soft(rows, soft, bins, softness, order), objective)
        measure = objectives.ece if objective == "ece" else objectives.adaptive_ece
        values = [measure(rows.confidence(1 / t), rows.correct_N, bins) for t in GRID]
        best = int(np.argmin(values))
        return cls(float(GRID[best]), _bound_of(best, len(GRID)), objective)

    def _apply(self, logits_NC: Array) -> Array:
        return softmax_over(logits_NC / self.temperature)

    def affine(self, classes: int) -> tuple[Array, Array]:
        return np.eye(classes) / self.temperature, np.zeros(classes)

    def _compared(self, logits_NC: Logits, labels_N: Labels) -> tuple[str, ...]:
        if _alike(logits_NC):
            return ("The logits are equal in every row of the fit: they say nothing, and T stays 1.",)
        # T = 1 lies in the range, and the prior's least: the NLL is never above the plain softmax's, no need to look
        return () if self.objective == "nll" else super()._compared(logits_NC, labels_N)

    def notes(self) -> list[str]:
        soft = dict.fromkeys(("sb_ece", "sb_ece_label"), "soft-binned ECE")
        what = {"nll": "NLL", "brier": "Brier score", **soft}.get(self.objective, "ECE")
        return super().notes() + bound_notes(self.temperature, self.bound, what)


def bound_notes(temperature: float, bound: Bound, what: str) -> list[str]:
    """Notes for the user on a temperature at the end of its range; `what` names the objective."""
    if bound is None:
        return []
    if bound == "lower":
        why = f"on the validation rows the {what} falls for ever as T does (no row is wrong, or none by much)"
        cure = "Use more, or harder, validation rows, or the objective 'nll' with shrinkage"
    else:
        why = "on the validation rows the logits say less than nothing about the labels"
        cure = "Check that logits and labels belong together"
    return [f"The temperature stopped at its {bound} bound {temperature:g}: {why}. {cure}."]


def end_of_range(temperature: float) -> Bound:
    """Which end of the range this is, if any."""
    return "lower" if temperature <= LOWEST else "upper" if temperature >= HIGHEST else None


def _alike(logits_NC: Logits) -> bool:
    return all(bool((logits_NC[rows] == logits_NC[rows, :1]).all()) for rows in row_blocks(*logits_NC.shape))


def solve_nll(rows: objectives.Rows, shrinkage: float = 0.0) -> tuple[float, Bound]:
    """The temperature of least NLL, under the prior of `Temperature`, and the bound it stopped at."""
    rows.shrink(shrinkage)
    step = rows.logits_NC.size // WARM
    start = 1.0
    if step > 1:
        few = objectives.Rows(rows.logits_NC[::step], rows.labels_N[::step])
        start = _newton(few, 1.0, 1e-3)[0]
    beta, bound = _newton(rows, start, 1e-7)
    return float(np.clip(1 / beta, LOWEST, HIGHEST)), bound


def _newton(rows: objectives.Rows, beta: float, close: float) -> tuple[float, Bound]:
    """Newton's method on the slope in beta, inside a bracket; it converges quadratically, so a last step shorter than
    `close` leaves an error of about its square. An end of the range is tried only if a step points beyond it."""
    low, high = 1 / HIGHEST, 1 / LOWEST
    tried = {low: False, high: False}
    while True:
        slope, curvature = rows.nll_slope(beta)
        if curvature == slope == 0:  # no row says anything, or none has any doubt: as good as any other
            return beta, None
        if slope >= 0 and beta <= 1 / HIGHEST:
            return 1 / HIGHEST, "upper"
        if slope <= 0 and beta >= 1 / LOWEST:
            return 1 / LOWEST, "lower"
        tried[beta] = True
        low, high = (low, beta) if slope > 0 else (beta, high)
        target = beta - slope / curvature if curvature > 0 else (low if slope > 0 else high)
        if not low < target < high:
            end = low if target <= low else high
            target = end if not tried.get(end, True) else float(np.sqrt(low * high))
        if abs(target - beta) <= close * beta or high - low <= 1e-13 * high:
            return target, None
        beta = target


def _around(best: int) -> tuple[float, float]:
    """The scan's neighbours of its best temperature, as a range of beta."""
    return 1 / SCAN[min(best + 1, len(SCAN) - 1)], 1 / SCAN[max(best - 1, 0)]


def _bound_of(best: int, tried: int = len(SCAN)) -> Bound:
    return "lower" if best == 0 else "upper" if best == tried - 1 else None


def _scan_brier(rows: objectives.Rows) -> tuple[float, Bound]:
    """The best of both ends and of every minimum that the slope shows between neighbours of the scan.

    Beside an end that nearly equals it, the least one need not be seen in the scan's values.
    """
    betas = 1 / SCAN
    values, slopes = zip(*map(rows.brier, betas.tolist()), strict=True)
    minima: list[tuple[float, float, Bound]] = [(values[0], SCAN[0], "lower"), (values[-1], SCAN[-1], "upper")]
    for k in range(len(SCAN) - 1):
        if slopes[k + 1] < 0 < slopes[k]:
            beta = brentq(lambda beta: rows.brier(beta)[1], betas[k + 1], betas[k], xtol=1e-13, rtol=1e-13)
            minima.append((rows.brier(beta)[0], 1 / beta, None))
    _, temperature, bound = min(minima, key=lambda minimum: minimum[0])
    return float(np.clip(temperature, LOWEST, HIGHEST)), bound


def _scan_soft(
    rows: objectives.Rows, measure: Callable[..., float], bins: int, softness: float, order: float
) -> tuple[float, Bound]:
    def value(beta: float) -> float:
        return measure(rows.confidence(beta), rows.correct_N, bins, softness, order)

    scanned = [value(1 / t) for t in SCAN]
    best = int(np.argmin(scanned))
    minimum = minimize_scalar(value, bounds=_around(best), method="bounded", options={"xatol": 1e-6 / SCAN[best]})
    if minimum.fun >= scanned[best]:
        return float(SCAN[best]), _bound_of(best)
    return float(np.clip(1 / minimum.x, LOWEST, HIGHEST)), None
