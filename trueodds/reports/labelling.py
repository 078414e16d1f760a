"""Labelling bias: are labels selected, delayed, or drifted? Each check returns a number and a sentence."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np

from trueodds import metrics
from trueodds.bundle import Reference
from trueodds.metrics import CELLS, CalibrationSums, ChoiceOfLabels, FullestCell, WeightedEce, cell_of
from trueodds.metrics.labelling.expected import CENTRE_C
from trueodds.metrics.significance.confidence_drift import LARGE, SIGNIFICANT
from trueodds.reports.data import LabelledRows, memoise
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import (
    Crowded,
    Drift,
    ExpectedAccuracy,
    Finding,
    Labelling,
    Sensitivity,
    WeightedFigures,
)
from trueodds.reports.words import labelled, p_value
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import coarse_counts
from trueodds.texts import plural

NEWEST = 5_000
"""Number of labels, the latest ones, on which fast and slow labels are compared."""
RATIOS = (1.0, 2.0)
FEWEST = 100
"""Number of labels below which fast and slow labels are not compared and propensities are not used."""
UNLABELLED = 0.01
"""Share of answers without a label below which no sensitivity is computed."""


def labelling_of(
    sums: AnswerSums,
    options: ReportOptions,
    rows: LabelledRows | None = None,
    reference: Reference | None = None,
) -> Labelling:
    """Compute all checks of the labels. Parts without a result are null.

    It takes 6 to 15 ms the first time. Results are cached by the content of the sums and rows.

    A window of the `last` labels has no known set of answers that these labels stand for. So coverage and comparisons
    with all answers are left out there.

    Args:
        sums: Sums of the answers and their labels.
        options: Window, bins and confidence level.
        rows: The labels of the window that arrived last, row by row.
        reference: The confidences of the validation rows.
    """
    window, labelling = options.window, Labelling()
    if window.last is None:
        labelling = _against_all(sums, options.bins, options.level, options.cells).model_copy()
    if window.last is None and not window.is_group and reference and sums.answers:
        labelling.drift = _drift(sums, reference.rows, tuple(reference.counts), reference.mean)
    if rows is not None and sums.labelled.n:
        labelling.delay = _delay(rows)
        # A table may hold the drawn answers alone, so its counts are not those of all answers.
        answers = None if window.last or options.one_look else _answers_of(rows, sums)
        weighted = _by_propensity(rows, options.bins, options.level, answers)
        labelling.weighted = [*labelling.weighted, *([weighted] if weighted else [])]
        labelling.uneven = _uneven(rows, weighted)
    return labelling


@memoise(128)
def choice_of(sums: AnswerSums) -> ChoiceOfLabels | None:
    """Test whether the labelled answers are as confident as all answers. None if all or none have labels."""
    if not 0 < sums.labelled.n < sums.answers:
        return None
    return metrics.choice_of_labels(sums.labelled, sums.answers_C)


@memoise(128)
def _against_all(sums: AnswerSums, bins: int, level: float, cells: int) -> Labelling:
    """Compute the checks that compare the labelled answers with all answers."""
    answers, labels = sums.answers, sums.labelled.n
    if not answers:
        return Labelling()
    labelling = Labelling(coverage=labels / answers, coverage_reading=_coverage(labels, answers))
    if labels < answers:
        labelling.expected_accuracy = _expected_accuracy(sums, level)
    if choice := choice_of(sums):  # without a choice there is nothing to weight
        labelling.choice = Finding(
            warning=choice.warning,
            p_value=choice.p_value,
            statistic=choice.chi_square,
            reading=f"{choice.reading.removesuffix('.')} ({p_value(choice.p_value)}).",
        )
        fullest = _fullest(sums, cells)
        if fullest.is_crowded:
            labelling.crowded = Crowded(
                share=fullest.share,
                lower=fullest.lower,
                upper=fullest.upper,
                refused=fullest.is_refused,
                warning=fullest.is_refused and choice.warning,
                reading=fullest.reading,
            )
        if not fullest.is_refused:
            weighed = metrics.weighted_ece(sums.labelled, sums.answers_C, bins=bins, level=level)
            labelling.weighted = [_figures("strata", weighed)]
        if not fullest.is_refused and answers - labels >= UNLABELLED * answers:
            labelling.sensitivity = [_sensitivity(sums, ratio, bins) for ratio in RATIOS]
    return labelling


def _fullest(sums: AnswerSums, cells: int) -> FullestCell:
    """Find the cell of confidence with the most answers, and return it with the limits that it has among `cells`."""
    fullest = metrics.fullest_cell(sums.labelled, sums.answers_C)
    if cells == CELLS:
        return fullest
    k = int(fullest.lower * CELLS + 0.5) // (CELLS // cells)
    return replace(fullest, lower=k / cells, upper=(k + 1) / cells)


def _sensitivity(sums: AnswerSums, ratio: float, bins: int) -> Sensitivity:
    estimate = metrics.sensitivity(sums.labelled, sums.answers_C, ratio=ratio, bins=bins)
    return Sensitivity(**asdict(estimate), reading=estimate.reading)


def _coverage(labels: int, answers: int) -> str:
    """Describe the share of answers with a label."""
    if not labels:
        return f"{plural(answers, 'answer')}, none with a label."
    if labels == answers:
        return f"{plural(answers, 'answer')}, all with labels."
    share = labels / answers
    return (
        f"{labelled(labels, answers)} ({share:.2g}, 1 in {answers / labels:,.0f})."
        if share < 0.01
        else f"{labelled(labels, answers)} ({share:.1%})."
    )


def _expected_accuracy(sums: AnswerSums, level: float) -> ExpectedAccuracy:
    """Estimate the accuracy of the answers without a label by their confidences."""
    expected = metrics.expected_accuracy(sums.labelled, sums.answers_C, level=level)
    of = plural(expected.answers, "answer") + (" without a label" if sums.labelled.n else "")
    share, limits = f"{expected.accuracy:.1%} of {of}", f"{expected.lower:.1%} to {expected.upper:.1%}"
    return ExpectedAccuracy(
        **asdict(expected),
        reading=(
            f"If their confidences hold, {share} {'is' if expected.answers == 1 else 'are'} right ({100 * level:.6g}%"
            f" interval {limits}). This assumes that the model is calibrated on them and that the meaning of the inputs"
            f" has not changed. No label has confirmed it.{_gap_of_labels(sums, expected.accuracy)}"
        ),
    )


def _gap_of_labels(sums: AnswerSums, expected: float) -> str:
    """Describe the gap of the answers that have a label."""
    if not sums.labelled.n:
        return ""
    gap = metrics.signed_gap(sums.labelled)
    return (
        f" Answers with a label are right {abs(100 * gap):.1f} points {'less' if gap < 0 else 'more'} often than they"
        f" say. If the same holds for the others, {min(max(expected + gap, 0.0), 1.0):.1%} of them are right."
    )


@memoise(128)
def _drift(sums: AnswerSums, rows: int, counts: tuple[int, ...], validation_mean: float) -> Drift:
    """Compare the confidences of the answers with those of the validation rows."""
    drift = metrics.confidence_drift(coarse_counts(sums.answers_C), counts)
    mean, chance = float(sums.answers_C @ CENTRE_C) / sums.answers, p_value(drift.p_value)
    both, of_rows = f"{mean:.1%} on average, {validation_mean:.1%} there", f"the {rows:,} validation rows"
    moved = (
        f"Confidences differ from those on {of_rows}: {both}; the share of answers above some confidence has changed by"
        f" {drift.distance:.1%} ({chance}). Numbers measured on the validation rows may no longer hold."
    )
    same = (
        f"Confidences are similar to those on {of_rows}: {both}; the share of answers above any confidence has changed"
        f" by at most {drift.distance:.1%} ({chance}; a warning needs p < {SIGNIFICANT:g} and {LARGE:.0%})."
    )
    return Drift(
        distance=drift.distance,
        p_value=drift.p_value,
        warning=drift.warning,
        validation_rows=rows,
        mean_confidence=mean,
        validation_mean_confidence=validation_mean,
        reading=moved if drift.warning else same,
    )


@memoise(128)
def _delay(rows: LabelledRows) -> Finding | None:
    """Compare the faster half of the latest 5,000 labels with the slower half, with each label as it is now."""
    confidence_L, correct_L, delay_L = (part[-NEWEST:] for part in (rows.confidence_L, rows.correct_L, rows.delay_ms_L))
    if len(delay_L) < FEWEST:
        return None
    fast_L = delay_L <= np.median(delay_L)
    if fast_L.all():  # all labels have the same delay
        return None
    halves = (CalibrationSums.from_top(confidence_L[half], correct_L[half]) for half in (fast_L, ~fast_L))
    try:
        delay = metrics.label_delay(*halves)
    except ValueError:  # no confidence has both fast and slow labels
        return None
    reading = (
        f"{delay.reading} At equal confidence, answers whose label came within"
        f" {_duration(float(np.median(delay_L)))} are right {abs(100 * delay.difference):.1f} points"
        f" {'more' if delay.difference >= 0 else 'less'} often than the others ({len(delay_L):,} labels,"
        f" {p_value(delay.p_value)})."
    )
    return Finding(warning=delay.warning, p_value=delay.p_value, statistic=delay.z, reading=reading)


def _duration(ms: float) -> str:
    """Describe milliseconds in the largest fitting unit."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1000)):
        if ms >= 2 * size:
            return f"{ms / size:.0f} {unit}"
    return f"{ms:.0f} ms"


def _answers_of(rows: LabelledRows, sums: AnswerSums) -> tuple[int, ...] | None:
    """Return the answers per cell that the rows stand for.

    None unless the rows are all labels, each with a propensity.
    """
    complete = np.array_equal(np.bincount(cell_of(rows.confidence_L), minlength=CELLS), sums.labelled.cells[0])
    return tuple(sums.answers_C.tolist()) if complete and np.isfinite(rows.propensity_L).all() else None


@memoise(128)
def _by_propensity(
    rows: LabelledRows, bins: int, level: float, answers: tuple[int, ...] | None
) -> WeightedFigures | None:
    """Estimate the figures of all answers with the propensities of the rows.

    Sums hold no propensities. So this uses the rows: the latest 5,000 labels, or as many as the window's `last`.
    """
    known_L = np.isfinite(rows.propensity_L)
    if np.count_nonzero(known_L) < FEWEST:
        return None
    parts = rows.confidence_L[known_L], rows.correct_L[known_L], rows.propensity_L[known_L]
    estimate = metrics.inverse_probability_ece(*parts, answers, bins=bins, level=level)
    of = f"From the {int(known_L.sum()):,} of the last {len(rows):,} labels whose answers have a propensity."
    return _figures("propensity", estimate, of)


def _uneven(rows: LabelledRows, weighted: WeightedFigures | None) -> str:
    """Caution that plain figures are not about all answers, if labels were drawn with different propensities."""
    known_L = rows.propensity_L[np.isfinite(rows.propensity_L)]
    if not len(known_L) or known_L.min() == known_L.max():
        return ""
    drawn = (
        f"The labels were drawn with different propensities ({known_L.min():.3g} to {known_L.max():.3g}), so the plain"
        " figures are about the labelled answers only."
    )
    if weighted is None:
        return f"{drawn} Weighted figures need {FEWEST} labels with a propensity; there are {len(known_L)}."
    return (
        f"{drawn} Weighted by them, the estimate of the calibration error of all answers is {weighted.ece_estimate:.3f}"
        f" ({weighted.ece_lower:.3f} to {weighted.ece_upper:.3f}), and {weighted.accuracy:.1%} of them are right."
    )


def _figures(how: str, estimate: WeightedEce, of: str = "") -> WeightedFigures:
    """Collect the figures of a weighted estimate."""
    interval = estimate.interval
    conditions = {
        "strata": "Valid for all answers if getting a label depends only on the confidence.",
        "propensity": "Valid for all answers that could be drawn, if the given propensities are correct. Answers"
        " that came after a draw could not.",
    }
    return WeightedFigures.model_validate(
        {
            "how": how,
            "ece": interval.ece,
            "ece_estimate": interval.estimate,
            "ece_lower": interval.lower,
            "ece_upper": interval.upper,
            "accuracy": estimate.accuracy,
            "signed_gap": estimate.signed_gap,
            "effective_n": estimate.effective_n,
            "reading": " ".join(part for part in (of, estimate.reading, conditions[how]) if part),
        }
    )
