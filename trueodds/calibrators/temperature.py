"""Temperature scaling, fitted by the exact NLL or by another objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import scipy

from trueodds.calibrators.base import Calibrator, Labels, Logits, row_blocks, softmax_over
from trueodds.calibrators.checks import Number, OneOf, OptionCheck, check_choice
from trueodds.calibrators.fitting import objectives
from trueodds.sums.inputs import Array

SHARPEST, FLATTEST = 1 / 200, 100.0
"""Ends of the range of T, in units of the logits' margin and spread (`objectives.Rows.sizes`).

At the lower end, the median row's top logit leads the next one by 200 nats, which no share of errors requires. At the
upper end the softmax is uniform to 1%, and a larger T changes the NLL by less than 1e-4 nats.
"""
SHRINKAGE = 2.0
"""Number of pseudo-errors in the prior.

With 1, fits on 50 rows with 2 expected wrong ones were up to .06 nats worse than no calibration in 200 draws (logits of
two classes, 1.5 times too large). benchmarks/library/selection.py measures 2.
"""
GRID = np.arange(1, 101) / 10
"""T = .1, .2, .. 10: the grid of the focal-calibration papers."""
GRID_ENDS = 0.2, 10.0
"""Temperatures of least NLL for which the published grid is used. Below them its steps are coarser than a quarter."""
STEPS = 54
"""Number of temperatures of a scan. Neighbours differ by a fifth to a quarter."""

Objective = Literal["nll", "brier", "ece", "adaptive_ece", "sb_ece", "sb_ece_label"]
Bound = Literal["lower", "upper"] | None


@dataclass(frozen=True, eq=False)
class Temperature(Calibrator):
    """Temperature scaling, p = softmax(z / T).

    T lies in [m / 200, 100 d]. m is the median over rows of max z minus the next z; d is that of max z minus mean z.
    Options of `fit`:

    - objective: "nll" (default), "brier", "ece", "adaptive_ece", "sb_ece" or "sb_ece_label".
    - shrinkage: Number of wrong pseudo-rows in the prior of "nll" (2).
    - bins: Number of bins of the four ECE objectives (15).
    - softness: T of the memberships in the soft-binned objectives (.01).
    - order: p of the soft-binned objectives (2).

    `nll` minimises sum_n -ln p_n,y + (shrinkage / e) mean_n sum_k -q_nk ln p_nk with q = softmax(z). e is the
    expected share of wrong rows, mean (1 - max q), or the observed share if that is larger. The second term is the
    conjugate prior of the exponential family softmax(beta z), beta = 1/T (Diaconis & Ylvisaker 1979, Annals of
    Statistics 7, 269). It adds pseudo-rows that the net labels itself, so many that `shrinkage` wrong ones are expected
    among them. It prevents rows with few or no errors from sharpening the net without limit, and has no effect beside
    many errors. shrinkage = 0 is the formula of Guo et al. The problem is convex in beta. With the prior's weight w =
    shrinkage / (e N) per row, the derivative is mean_n [(1 + w) E_p z_n - z_n,y - w E_q z_n]. Newton steps inside a
    bracket find its root to a relative 1e-12. The other objectives are published methods without a prior.

    `brier` minimises the Brier score, which is not convex. It takes the best of 54 temperatures in geometric steps
    over the range, then the root of the derivative between its neighbours.

    `ece` and `adaptive_ece` take the best of T = .1, .2, .. 10 by the top label's ECE with equal-width or
    equal-count bins. If several are best, the smallest T counts. If the temperature of least NLL is outside [.2, 10],
    the grid is multiplied by the power of ten below that temperature.

    `sb_ece` and `sb_ece_label` minimise the soft-binned ECE by bins and by rows, scanned and refined like "brier",
    to 1e-6.

    The fit on c z is c T, for any c > 0. This is exact for "nll" without shrinkage, "brier" and the soft-binned
    objectives, and for the grid if c is a power of ten. The prior's q = softmax(z) is the only term that depends on the
    logits' size; with N rows its influence is of the order 1 / N, whatever that size.

    Without a wrong validation row, the other objectives, and the NLL without shrinkage, have no minimum: they fall as
    T -> 0. Without information in the logits they have none either (T -> infinity). Then `bound` records the end of the
    range or grid, and `warnings` reports it. Logits that are equal in every row leave T = 1.

    References:
        Guo et al. 2017, On calibration of modern neural networks, section 4.2 (nll). Mukhoti et al. 2020, Calibrating
        deep neural networks using focal loss, section 4 (ece, adaptive_ece). Karandikar et al. 2021, Soft calibration
        objectives for neural networks, eqs. 11 and 12 (sb_ece, sb_ece_label).

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "temperature")([[2, 0]]).round(3)
        array([[0.755, 0.245]])
    """

    name: ClassVar[str] = "temperature"
    is_regularised: ClassVar[bool] = True
    keeps_argmax = True
    checks: ClassVar[Mapping[str, OptionCheck]] = {
        "objective": OneOf(objectives.NAMES),
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
        check_temperature(self.temperature, self.bound)
        check_choice("objective", self.objective, objectives.NAMES)

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
        grid = GRID * _unit(rows)
        values = [measure(rows.confidence(1 / t), rows.correct_N, bins) for t in grid]
        best = int(np.argmin(values))
        return cls(float(grid[best]), _bound_of(best, len(grid)), objective)

    def _apply(self, logits_NC: Array) -> Array:
        return softmax_over(logits_NC / self.temperature)

    def affine(self, classes: int) -> tuple[Array, Array]:
        return np.eye(classes) / self.temperature, np.zeros(classes)

    def _row_warnings(self, logits_NC: Logits, labels_N: Labels) -> tuple[str, ...]:
        if _alike(logits_NC):
            return ("The logits are equal in every row of the fit. They hold no information, and T stays 1.",)
        # If the optimum is inside the range, its NLL is never above that of the plain softmax: no check is needed
        within = self.objective == "nll" and self.bound is None
        return () if within else super()._row_warnings(logits_NC, labels_N)

    def _fit_warnings(self) -> list[str]:
        soft = dict.fromkeys(("sb_ece", "sb_ece_label"), "soft-binned ECE")
        what = {"nll": "NLL", "brier": "Brier score", **soft}.get(self.objective, "ECE")
        return bound_notes(self.temperature, self.bound, what)


def check_temperature(temperature: float, bound: Bound) -> None:
    """Check fields of a temperature.

    Raises:
        ValueError: No fit gives such values.
    """
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature is {temperature}; allowed is a finite number above 0")
    if bound is not None:
        check_choice("bound", bound, ("lower", "upper"))


def bound_notes(temperature: float, bound: Bound, what: str) -> list[str]:
    """Return notes for the user about a temperature at the end of its range. `what` names the objective."""
    if bound is None:
        return []
    if bound == "lower":
        why = f"on the validation rows the {what} keeps falling with T (no row is wrong, or none by much)"
        cure = "Use more, or harder, validation rows, or the objective 'nll' with shrinkage"
    else:
        why = "on the validation rows the logits hold no information about the labels"
        cure = "Check that logits and labels belong together"
    return [f"The temperature stopped at its {bound} bound {temperature:g}: {why}. {cure}."]


def range_of(rows: objectives.Rows) -> tuple[float, float]:
    """Return the smallest and largest temperature for logits of this size."""
    margin, spread = rows.sizes
    return max(SHARPEST * margin, 1e-300), min(FLATTEST * spread, 1e300)


def _alike(logits_NC: Logits) -> bool:
    return all(bool((logits_NC[rows] == logits_NC[rows, :1]).all()) for rows in row_blocks(*logits_NC.shape))


def solve_nll(rows: objectives.Rows, shrinkage: float = 0.0) -> tuple[float, Bound]:
    """Return the temperature of least NLL under the prior of `Temperature`, and the bound at which it stopped."""
    rows.shrink(shrinkage)
    lowest, highest = range_of(rows)
    step = rows.logits_NC.size // objectives.WARM
    start = float(np.clip(1.0, 1 / highest, 1 / lowest))
    if step > 1:
        few = objectives.Rows(rows.logits_NC[::step], rows.labels_N[::step])
        start = _newton(few, start, 1e-3, lowest, highest)[0]
    beta, bound = _newton(rows, start, 1e-7, lowest, highest)
    return float(np.clip(1 / beta, lowest, highest)), bound


def _newton(rows: objectives.Rows, beta: float, close: float, lowest: float, highest: float) -> tuple[float, Bound]:
    """Find the root of the slope in beta with Newton's method inside a bracket.

    It converges quadratically, so a last step shorter than `close` leaves an error of about its square. An end of the
    range is tried only if a step points beyond it.
    """
    low, high = 1 / highest, 1 / lowest
    tried = {low: False, high: False}
    while True:
        slope, curvature = rows.nll_slope(beta)
        # Without any slope the rows hold no information, or no row has any doubt: every T is equally good
        if slope >= 0 and beta <= 1 / highest:
            return 1 / highest, "upper"
        if slope <= 0 and beta >= 1 / lowest:
            return 1 / lowest, "lower"
        if curvature == slope == 0:
            return beta, None
        tried[beta] = True
        low, high = (low, beta) if slope > 0 else (beta, high)
        target = beta - slope / curvature if curvature > 0 else (low if slope > 0 else high)
        if not low < target < high:
            end = low if target <= low else high
            target = end if not tried.get(end, True) else float(np.sqrt(low * high))
        if abs(target - beta) <= close * beta or high - low <= 1e-13 * high:
            return target, None
        beta = target


def _unit(rows: objectives.Rows) -> float:
    """Return the factor on the published grid."""
    temperature, bound = solve_nll(rows)
    if bound is not None or GRID_ENDS[0] <= temperature <= GRID_ENDS[1]:
        return 1.0
    return float(10.0 ** np.floor(np.log10(temperature)))


def _scan(rows: objectives.Rows) -> Array:
    return np.geomspace(*range_of(rows), STEPS)


def _bound_of(best: int, trials: int) -> Bound:
    return "lower" if best == 0 else "upper" if best == trials - 1 else None


def _scan_brier(rows: objectives.Rows) -> tuple[float, Bound]:
    """Return the best of both ends and of every minimum that the slope shows between neighbours of the scan.

    The values of the scan need not show the least minimum if an end is nearly equal to it.
    """
    scan = _scan(rows)
    betas = 1 / scan
    values, slopes = zip(*map(rows.brier, betas.tolist()), strict=True)
    minima: list[tuple[float, float, Bound]] = [(values[0], scan[0], "lower"), (values[-1], scan[-1], "upper")]
    for k in range(len(scan) - 1):
        if slopes[k + 1] < 0 < slopes[k]:
            close = 1e-13 * betas[k]
            beta = scipy.optimize.brentq(
                lambda beta: rows.brier(beta)[1], betas[k + 1], betas[k], xtol=close, rtol=1e-13
            )
            minima.append((rows.brier(beta)[0], 1 / beta, None))
    _, temperature, bound = min(minima, key=lambda minimum: minimum[0])
    return float(np.clip(temperature, scan[0], scan[-1])), bound


def _scan_soft(
    rows: objectives.Rows, measure: Callable[..., float], bins: int, softness: float, order: float
) -> tuple[float, Bound]:
    def value(beta: float) -> float:
        return measure(rows.confidence(beta), rows.correct_N, bins, softness, order)

    scan = _scan(rows)
    scanned = [value(1 / t) for t in scan]
    best = int(np.argmin(scanned))
    around = 1 / scan[min(best + 1, STEPS - 1)], 1 / scan[max(best - 1, 0)]
    minimum = scipy.optimize.minimize_scalar(
        value, bounds=around, method="bounded", options={"xatol": 1e-6 / scan[best]}
    )
    if minimum.fun >= scanned[best]:
        return float(scan[best]), _bound_of(best, STEPS)
    return float(np.clip(1 / minimum.x, scan[0], scan[-1])), None
