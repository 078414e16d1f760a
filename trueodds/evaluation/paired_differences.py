"""Paired comparison of two methods on the same rows: error, NLL, Brier score and squared calibration error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trueodds.metrics.significance.differences import FEW, Difference, holm, of_rows
from trueodds.metrics.significance.squared_error import squared_calibration_difference
from trueodds.sums.inputs import Array
from trueodds.sums.losses import brier_of, nll_of, rounded_losses
from trueodds.sums.positive import losses_of_positive
from trueodds.sums.rounding import EXACT, Resolution

LEVEL = 0.05
"""Significance level after Holm's correction."""
ERROR, NLL, BRIER, SQUARED = "error_rate", "nll", "brier", "squared_calibration_error"
MEASURES = (ERROR, NLL, BRIER, SQUARED)
SET_COVERAGE, SET_SIZE = "set_coverage", "set_size"
"""Measures of conformal sets. `differences` does not test them."""
WORDS = {
    ERROR: "error",
    NLL: "NLL",
    BRIER: "Brier score",
    SQUARED: "squared calibration error",
    SET_COVERAGE: "coverage of the sets",
    SET_SIZE: "size of the sets",
}
SCALES = {
    ERROR: (100, " points", 2),
    NLL: (1, "", 4),
    BRIER: (1, "", 4),
    SQUARED: (1e4, " squared points", 2),
    SET_COVERAGE: (100, " points", 2),
    SET_SIZE: (1, " classes", 3),
}
"""Factor, unit and decimals of each measure in sentences."""
ONE_SEED = "one seed, which compares two nets, not two methods"


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of each of N rows, for one net."""

    error_N: Array
    nll_N: Array
    """NLL in nats; NaN if the probabilities are in steps too coarse for it."""
    brier_N: Array
    confidence_N: Array
    """Probability whose calibration is evaluated."""
    correct_N: npt.NDArray[np.bool_]
    """Whether the event of that probability occurred."""
    most_brier: float = 2.0
    """Largest possible Brier score: 2 over all classes, 1 of a single probability."""

    @classmethod
    def of_probabilities(
        cls, p_NC: Array, labels_N: npt.NDArray[np.integer], resolution: Resolution = EXACT
    ) -> RowScores:
        """Score probabilities of all classes. The confidence is that of the top label."""
        p_NC = p_NC.astype(np.float64, copy=False)
        correct_N, true_N = p_NC.argmax(axis=1) == labels_N, p_NC[np.arange(len(p_NC)), labels_N]
        confidence_N = resolution.confidence(np.minimum(p_NC.max(axis=1), 1.0))
        if resolution.step is None:
            nll_N, brier_N = nll_of(true_N), brier_of(true_N, (p_NC**2).sum(axis=1))
        else:
            losses = rounded_losses(p_NC, labels_N.astype(np.intp), resolution.step)
            nll_N, brier_N = losses.nll_N if resolution.has_nll else np.full(len(p_NC), np.nan), losses.brier_N
        return cls((~correct_N).astype(np.float64), nll_N, brier_N, confidence_N, correct_N)

    @classmethod
    def of_confidence(
        cls, confidence_N: Array, correct_N: npt.NDArray[np.bool_], resolution: Resolution = EXACT
    ) -> RowScores:
        """Score the top label alone, as a probability of being right: NLL in nats, and Brier score in [0, 1]."""
        nll_N, _, brier_N = losses_of_positive(confidence_N, correct_N, resolution)
        nll_N = nll_N if resolution.has_nll else np.full(len(nll_N), np.nan)
        read_N = resolution.confidence(confidence_N)
        return cls((~correct_N).astype(np.float64), nll_N, brier_N, read_N, correct_N, 1.0)

    @classmethod
    def of_positive(cls, p_N: Array, positive_N: npt.NDArray[np.bool_], resolution: Resolution = EXACT) -> RowScores:
        """Score p(positive) in [0, 1]. The error is that of the more probable class."""
        of_p = cls.of_confidence(p_N, positive_N, resolution)
        return replace(of_p, error_N=((p_N > 0.5) != positive_N).astype(np.float64))

    @property
    def is_rare(self) -> bool:
        """Whether fewer than 20 rows had one of the two outcomes, so that most of their costs were not seen."""
        right = int(np.count_nonzero(self.correct_N))
        return min(right, len(self.correct_N) - right) < FEW

    def if_otherwise(self, measure: str) -> Array:
        """Compute NLL or Brier score of each row if its outcome were the other one, from the confidence alone."""
        rest_N = np.where(self.correct_N, 1 - self.confidence_N, self.confidence_N)
        return nll_of(rest_N) if measure == NLL else self.most_brier * (1 - rest_N) ** 2


def differences(
    ours: Sequence[RowScores], theirs: Sequence[RowScores], *, bins: int = 15, level: float = 0.95
) -> dict[str, Difference]:
    """Test each measure, ours minus theirs. Seed s of ours is paired with seed s of theirs, and row n with row n.

    Error, NLL and Brier score are means over rows (`of_rows`). The NLL is left out if some net has none. Calibration is
    compared by the squared calibration error (`squared_calibration_difference`). Plug-in calibration errors are not
    compared: the noise floors of two calibrated models of different sharpness differ, and more rows or seeds would only
    confirm that difference.
    """

    pairs = list(zip(ours, theirs, strict=True))
    one, other = ([(net.confidence_N, net.correct_N) for net in nets] for nets in (ours, theirs))
    squared = squared_calibration_difference(one, other, bins=bins, level=level)
    known = not any(np.isnan(net.nll_N).any() for net in (*ours, *theirs))
    measures = (ERROR, NLL, BRIER) if known else (ERROR, BRIER)
    return {**{measure: score_difference(pairs, measure, level) for measure in measures}, SQUARED: squared}


def score_difference(pairs: Sequence[tuple[RowScores, RowScores]], measure: str, level: float = 0.95) -> Difference:
    """Test error, NLL or Brier score of pairs of nets, one pair for each seed (`of_rows`).

    If fewer than 20 rows had one of the two outcomes, rows that were not drawn may cost as much as the root mean square
    of what the drawn ones would have cost otherwise.
    """

    def of(net: RowScores) -> Array:
        return {ERROR: net.error_N, NLL: net.nll_N, BRIER: net.brier_N}[measure]

    unseen = (0.0, 0.0)
    if measure != ERROR and any(net.is_rare for pair in pairs for net in pair):
        other_SN = np.stack([one.if_otherwise(measure) - two.if_otherwise(measure) for one, two in pairs])
        unseen = -_root_mean_square(np.minimum(other_SN, 0)), _root_mean_square(np.maximum(other_SN, 0))
    most_brier = max(net.most_brier for pair in pairs for net in pair)
    bound = {ERROR: 1.0, BRIER: most_brier}.get(measure)
    return of_rows(np.stack([of(one) - of(two) for one, two in pairs]), level, bound=bound, unseen=unseen)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))


@dataclass(frozen=True)
class TestedDifference:
    """The difference of one measure from another method.

    The p-value is adjusted for all differences of the measure (Holm). `detectable` is the difference that would have
    been found with a power of 80%, at the significance level of Holm's first step.
    """

    measure: str
    difference: Difference
    adjusted_p: float
    detectable: float | None

    @property
    def is_real(self) -> bool:
        """Whether the difference is significant."""
        return self.adjusted_p < LEVEL

    def sentence(self, ours: str, theirs: str, *, correction: bool = True, seeds: bool = True) -> str:
        """Describe the difference with its interval and its significance.

        Args:
            ours: Name before the colon.
            theirs: Name of the other method in the genitive, such as "the baseline's".
            correction: Whether several differences were tested, so that Holm's correction is named.
            seeds: Whether the number of seeds is stated.
        """
        d = self.difference
        scale, unit, digits = SCALES[self.measure]
        limits = ""
        if d.lower is not None and d.upper is not None:
            low, high = (f"{scale * value + 0.0:+.{digits}f}" for value in (d.lower, d.upper))
            limits = f" [{low}, {high}]"
        verdict = self._verdict(theirs)
        nets = f"; {d.seeds} seeds" if d.seeds > 1 else f"; {ONE_SEED}"
        p = f"p {self.adjusted_p:.2g}" + " after Holm's correction" * correction
        about = f"{ours}: {WORDS[self.measure]} {scale * d.mean:+.{digits}f}{unit}"
        return f"{about}{limits}, {verdict} ({p}{nets * seeds})."

    def _verdict(self, theirs: str) -> str:
        """Return what is known of the difference: its sign, or what would have been seen."""
        d = self.difference
        if d.differing == 0 and d.rows and d.most_differing is not None:
            share = f"at most {100 * d.most_differing:.2f}% of all rows differ"
            return f"no difference from {theirs} in {d.rows:,} rows: {share}"
        few = ""
        if d.differing is not None and d.rows:
            few = (
                f"; {d.differing:,} of {d.rows:,} rows differ" if d.differing < d.rows else "; a few rows may decide it"
            )
        if self.is_real:
            return f"{'lower' if d.mean < 0 else 'higher'} than {theirs}{few}"
        verdict = f"not told from {theirs}: chance explains it{few}"
        if self.detectable is not None:
            scale, unit, digits = SCALES[self.measure]
            seen = f"{scale * self.detectable:.{digits}f}{unit}"
            verdict += f"; a difference of {seen} would have been seen in 80% of repetitions"
        return verdict


def adjust_p_values(differences: Sequence[tuple[str, Difference]]) -> list[TestedDifference]:
    """Correct the p-values of differences, separately for each measure, and keep their order.

    Args:
        differences: Measures with their differences, each of which has a p-value.
    """
    by_measure: dict[str, list[int]] = {}
    for place, (measure, _) in enumerate(differences):
        by_measure.setdefault(measure, []).append(place)
    of_place: dict[int, TestedDifference] = {}
    for measure, places in by_measure.items():
        some = [differences[place][1] for place in places]
        adjusted = holm([1.0 if d.p_value is None else d.p_value for d in some])
        for place, d, p in zip(places, some, adjusted, strict=True):
            of_place[place] = TestedDifference(measure, d, p, d.detectable(LEVEL / len(places)))
    return [of_place[place] for place in range(len(differences))]


def summary(differences: Iterable[TestedDifference], theirs: str = "the baseline") -> str:
    """Count the significant differences and state which would have been found; "" if there are none."""
    differences = list(differences)
    if not differences:
        return ""
    names = ", ".join(WORDS[measure] for measure in MEASURES if any(one.measure == measure for one in differences))
    of, real = f"tested differences ({names}) to {theirs}", sum(one.is_real for one in differences)
    told = f"does not explain {real} of {len(differences)}" if real else f"explains all {len(differences)}"
    return f"Chance {told} {of}. {_detectable_differences(differences)}".strip()


def _detectable_differences(differences: Sequence[TestedDifference]) -> str:
    """Describe the differences that would have been found, from the most to the least precise comparison."""
    ranges = []
    for measure in MEASURES:
        sizes = [one.detectable for one in differences if one.measure == measure and one.detectable is not None]
        if sizes:
            scale, unit, digits = SCALES[measure]
            low, high = (f"{scale * value:.{digits}f}" for value in (min(sizes), max(sizes)))
            between = low if low == high else f"between {low} and {high}"
            ranges.append(f"{between}{unit or (' nats' if measure == NLL else '')} of {WORDS[measure]}")
    return f"A difference of {' or '.join(ranges)} would have been seen in 80% of repetitions." if ranges else ""
