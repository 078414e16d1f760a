"""Compares a study's settings with its baseline, and tells effects from chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from pipeline.studies.format import CALIBRATOR, SECONDS, Study
from pipeline.studies.measuring import DEVICE, SEED, Row, Setting, fit_calibrator, leaves_of, settings_of
from pipeline.studies.runs import Place
from trueodds.calibrators import FitError
from trueodds.evaluation import paired_differences as differences
from trueodds.evaluation.paired_differences import LEVEL, MEASURES, RowScores, TestedDifference
from trueodds.metrics.significance.differences import Difference, holm, of_seeds

MANY = 10
"""Number of values from which their bootstrap is used. With fewer values BCa's intervals are too short."""
NOTE = (
    "Calibration errors are plug-in estimates. Chance raises each one to about its noise floor, which is higher for the"
    " less sharp of two calibrated models. Their differences are therefore no evidence. The squared calibration error"
    " has no such bias and is tested."
)


@dataclass(frozen=True)
class BaselineComparison:
    """The tested difference of one measure between a setting and the baseline, with the same calibrator."""

    setting: str
    calibrator: str
    test: TestedDifference

    def sentence(self) -> str:
        """Return the difference in words, and whether chance explains it."""
        return self.test.sentence(f"{self.setting}, {self.calibrator}", "the baseline's")


def compare(study: Study, places: Sequence[Place]) -> list[BaselineComparison]:
    """Compare every setting with the baseline on the seeds that both have. Returns nothing without a baseline.

    Each measure of `trueodds.evaluation.paired_differences` is tested. Plug-in calibration errors are not tested (see
    `measuring.is_plug_in`). The correction covers all differences of one measure. A difference that a calibrator does
    not change, such as that of the error under temperature scaling, counts once.
    """
    if not study.baseline:
        return []
    done = [place for place in places if place.is_done]
    settings: dict[str, dict[Any, Place]] = {}
    for place in done:
        settings.setdefault(_setting(place.run.axis_leaves), {})[place.run.overrides.get(SEED)] = place
    found: dict[tuple[str, str, Difference], str] = {}
    for name, by_seed in settings.items():
        baseline = _baseline(study, done, by_seed)
        if shared := sorted(set(by_seed) & set(baseline), key=str):
            for entry in study.calibrators:
                nets = [[_scores(of[seed], entry) for seed in shared] for of in (by_seed, baseline)]
                ours, theirs = ([one for one in scores if one is not None] for scores in nets)
                if len(ours) == len(theirs) == len(shared):
                    bins = done[0].run.params.evaluation.bins
                    for measure, difference in differences.differences(ours, theirs, bins=bins).items():
                        found.setdefault((name, measure, difference), entry)
    tested = differences.adjust_p_values([(measure, difference) for _, measure, difference in found])
    compared = [
        BaselineComparison(name, entry, one) for ((name, *_), entry), one in zip(found.items(), tested, strict=True)
    ]
    return sorted(compared, key=lambda one: MEASURES.index(one.test.measure))


def summary(comparisons: Sequence[BaselineComparison]) -> str:
    """Return the number of significant differences in words; "" if nothing was tested."""
    return differences.summary(one.test for one in comparisons)


def _setting(leaves: Mapping[str, Any]) -> str:
    """Return the name of a run's setting."""
    return " ".join(f"{leaf}={value}" for leaf, value in leaves.items() if leaf != SEED and value is not None)


def _baseline(study: Study, places: Sequence[Place], by_seed: Mapping[Any, Place]) -> dict[Any, Place]:
    """Return the baseline's runs by seed that equal a setting in all other parameters; none for the baseline itself."""
    varied = next(iter(by_seed.values())).run.axis_leaves
    rest = {leaf: value for leaf, value in varied.items() if leaf not in (SEED, *study.baseline)}
    if all(varied.get(leaf) == value for leaf, value in study.baseline.items()):
        return {}
    return {p.run.overrides.get(SEED): p for p in places if p.run.matches({**rest, **study.baseline})}


def _scores(place: Place, entry: str) -> RowScores | None:
    """Return the scores of the test rows; None if the validation rows do not determine the calibrator."""
    val, test = place.logits()
    try:
        p_NC = fit_calibrator(val, entry)(test.logits_NC, groups=test.groups_N)
    except FitError:
        return None
    return RowScores.of_probabilities(p_NC, test.labels_N)


def times(study: Study, table: Sequence[Row]) -> list[str]:
    """Compare each setting's time with the baseline's, if `seconds` is reported.

    The ratio is the geometric mean over the seeds that both have on one device. The time of a run includes all its
    attempts. Interval and test are Student's t on the logarithms, corrected for the number of settings (Holm).
    """
    if SECONDS not in study.report or not study.baseline:
        return []
    settings = [one for one in settings_of(study, table) if one.rows[0][CALIBRATOR] == study.calibrators[0]]
    found = []
    for one in settings:
        beside = baseline_of(study, one, settings)
        if beside is not None and beside is not one and (logs := _log_ratios(one.rows, beside.rows)):
            found.append((one.name, of_seeds(logs)))
    tested = [difference.p_value for _, difference in found if difference.p_value is not None]
    adjusted = iter(holm(tested))
    return [_time(name, d, None if d.p_value is None else next(adjusted), len(tested)) for name, d in found]


def _log_ratios(ours: Sequence[Row], theirs: Sequence[Row]) -> list[float]:
    """Return log(our seconds / theirs) for each seed and device that both have."""
    of = {(row.get(SEED), row.get(DEVICE)): row[SECONDS] for row in theirs if row.get(SECONDS)}
    pairs = [(row[SECONDS], of.get((row.get(SEED), row.get(DEVICE)))) for row in ours if row.get(SECONDS)]
    return [math.log(seconds / other) for seconds, other in pairs if other]


def _time(name: str, difference: Difference, adjusted_p: float | None, tests: int) -> str:
    """Return the ratio of times in words."""
    about = f"{name}: {math.exp(difference.mean):.2f} times the baseline's time"
    if adjusted_p is None:
        return f"{about} (one seed; other runs may differ)."
    seeds = f"{difference.seeds} seeds"
    if difference.lower is None or difference.upper is None:
        return f"{about}, no difference in {seeds} (p {adjusted_p:.2g})."
    low, high = (math.exp(end) for end in (difference.lower, difference.upper))
    verdict = f"{'faster' if difference.mean < 0 else 'slower'} than the baseline"
    if adjusted_p >= LEVEL:
        verdict = "not significantly different from the baseline's"
        if (seen := difference.detectable(LEVEL / tests)) is not None:
            verdict += f"; a ratio of {math.exp(seen):.3g} would be detected in 80% of repetitions"
    return f"{about} [{low:.2f}, {high:.2f}], {verdict} (p {adjusted_p:.2g} after Holm's correction; {seeds})."


def baseline_of(study: Study, setting: Setting, settings: Sequence[Setting]) -> Setting | None:
    """Return the baseline that equals a setting in all other parameters, or None."""
    wanted = {leaf: setting.rows[0].get(leaf) for leaf in (*leaves_of(study), CALIBRATOR)} | study.baseline
    return next((one for one in settings if all(one.rows[0].get(leaf) == wanted[leaf] for leaf in wanted)), None)


@dataclass(frozen=True)
class OverSeeds:
    """Mean of S values, their standard deviation (divisor S - 1), and the mean's standard error and interval.

    For one value only the mean is set.
    """

    values: int
    mean: float
    deviation: float | None = None
    error: float | None = None
    lower: float | None = None
    upper: float | None = None


def over_seeds(values: Sequence[float], level: float = 0.95) -> OverSeeds:
    """Return mean and interval: mean +- t_{S-1} s / sqrt(S), or from 10 values the BCa bootstrap (Efron 1987).

    Raises:
        ValueError: There is no value, or one is not finite.

    Examples:
        >>> over_seeds([1.0, 2.0, 3.0]).error
        0.5773502691896258
    """
    x = np.asarray(values, np.float64)
    if not len(x) or not np.isfinite(x).all():
        raise ValueError(f"values are {list(values)}; allowed are finite numbers, at least one")
    mean = float(x.mean())
    if len(x) == 1:
        return OverSeeds(1, mean)
    deviation = float(x.std(ddof=1))
    error = deviation / math.sqrt(len(x))
    half = float(stats.t.ppf((1 + level) / 2, len(x) - 1)) * error
    lower, upper = mean - half, mean + half
    if len(x) >= MANY and deviation:
        found = stats.bootstrap((x,), np.mean, confidence_level=level, rng=np.random.default_rng(0))
        lower, upper = (float(end) for end in found.confidence_interval)
    return OverSeeds(len(x), mean, deviation, error, lower, upper)


def cohens_d(first: Sequence[float], second: Sequence[float], *, small_samples: bool = False) -> float:
    """Return Cohen's d: (mean of first - mean of second) / s, with the pooled variance s^2.

    s^2 = ((n-1) s_1^2 + (m-1) s_2^2) / (n + m - 2). NaN if the variance is 0.

    Args:
        first: The n values of one side.
        second: The m values of the other side.
        small_samples: Whether d is multiplied by 1 - 3 / (4 (n + m) - 9), Hedges' correction (1981).

    Raises:
        ValueError: One side has fewer than two values.

    References:
        Cohen, Statistical Power Analysis for the Behavioral Sciences, 1988, section 2.2.

    Examples:
        >>> round(cohens_d([2.0, 4.0], [1.0, 3.0]), 4)
        0.7071
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if min(len(a), len(b)) < 2:
        raise ValueError(f"{len(a)} and {len(b)} values; an effect size needs at least two on each side")
    freedom = len(a) + len(b) - 2
    variance = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom
    if variance == 0:
        return math.nan
    factor = 1 - 3 / (4 * (len(a) + len(b)) - 9) if small_samples else 1.0
    return float(factor * (a.mean() - b.mean()) / math.sqrt(variance))
