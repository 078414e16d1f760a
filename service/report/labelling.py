"""What labels cannot tell, or only under a condition: in plain words, each with its number."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np

from service.report.cache import remembered
from service.report.recent import RECENT, chosen
from service.report.schemas import Crowded, Drift, Finding, LabelFree, Labelling, Sensitivity, WeightedFigures
from service.report.scope import Asked
from service.report.verdict import labelled
from service.store.records import LabelBlock, StoredSums, Version
from trueodds import metrics
from trueodds.hours import hour_of, hours_of, within
from trueodds.metrics import CELLS, CalibrationSums, FullestCell, WeightedEce, cell_of
from trueodds.metrics.drift import LARGE, SIGNIFICANT
from trueodds.sums.bins import COARSE_CELLS, coarse_counts
from trueodds.texts import plural

RATIOS = (1.0, 2.0)
FEWEST = 100
"""Labels below which fast and slow ones are not compared, and propensities are not weighed by."""
UNLABELLED = 0.01
"""Share of the answers without a label below which it is not asked what they could be."""


def labelling(version: Version, sums: StoredSums, recent: LabelBlock | None, asked: Asked) -> Labelling:
    """All of it; what there is nothing to say from is null.

    `recent`: the labels that arrived last; of them those of the window are used. Of `last` labels one cannot say which
    answers they stand for, so coverage and what compares with all answers is left out. 6 to 15 ms the first time,
    after that remembered by the content of the sums and labels.
    """
    found = Labelling()
    if asked.last is None:
        found = _against_all(sums, asked.bins, asked.level, bool(asked.group)).model_copy()
    if asked.last is None and not asked.group and version.reference and sums.answers:
        found.drift = _drift(sums, version.reference.rows, tuple(version.reference.counts), version.reference.mean)
    rows = _of_window(recent, version, asked) if recent is not None else None
    if rows is not None and sums.labelled.n:
        found.delay = _delay(rows)
        weighted = _by_propensity(rows, asked.bins, asked.level, None if asked.last else _answers_of(rows, sums))
        found.weighted = [*found.weighted, *([weighted] if weighted else [])]
    return found


@remembered(128)
def _against_all(sums: StoredSums, bins: int, level: float, group: bool) -> Labelling:
    answers, told = sums.answers, sums.labelled.n
    if not answers:
        return Labelling()
    found = Labelling(coverage=told / answers, coverage_reading=_coverage(told, answers))
    found.label_free = _label_free(sums)
    if not told:
        return found
    if told < answers:  # otherwise there is no choice, and nothing to weigh
        choice = metrics.choice_of_labels(sums.labelled, sums.answers_C)
        found.choice = Finding(
            warning=choice.warning,
            p_value=choice.p_value,
            statistic=choice.chi_square,
            reading=f"{choice.reading.removesuffix('.')} (p = {choice.p_value:.2g}).",
        )
        fullest = _fullest(sums, group)
        if fullest.crowded:
            found.crowded = Crowded(
                share=fullest.share,
                lower=fullest.lower,
                upper=fullest.upper,
                refused=fullest.refused,
                warning=fullest.refused and choice.warning,
                reading=fullest.reading,
            )
        if not fullest.refused:
            weighed = metrics.weighted_ece(sums.labelled, sums.answers_C, bins=bins, level=level)
            found.weighted = [_figures("strata", weighed)]
        if not fullest.refused and answers - told >= UNLABELLED * answers:
            found.sensitivity = [_sensitivity(sums, ratio, bins) for ratio in RATIOS]
    return found


def _fullest(sums: StoredSums, group: bool) -> FullestCell:
    """Of a class or tag the answers are counted in fewer cells."""
    found = metrics.fullest_cell(sums.labelled, sums.answers_C)
    if not group:
        return found
    k = int(found.lower * CELLS + 0.5) // (CELLS // COARSE_CELLS)
    return replace(found, lower=k / COARSE_CELLS, upper=(k + 1) / COARSE_CELLS)


def _sensitivity(sums: StoredSums, ratio: float, bins: int) -> Sensitivity:
    found = metrics.sensitivity(sums.labelled, sums.answers_C, ratio=ratio, bins=bins)
    return Sensitivity(**asdict(found), reading=found.reading)


def _coverage(told: int, answers: int) -> str:
    if not told:
        return f"{plural(answers, 'answer')}, none with a label."
    if told == answers:
        return f"{plural(answers, 'answer')}, all with labels: nothing is left to guess."
    share = told / answers
    return (
        f"{labelled(told, answers)} ({share:.2g}, 1 in {answers / told:,.0f})."
        if share < 0.01
        else f"{labelled(told, answers)} ({share:.1%})."
    )


def _label_free(sums: StoredSums) -> LabelFree:
    centre_C = (np.arange(CELLS) + 0.5) / CELLS
    mean = float(sums.answers_C @ centre_C) / sums.answers
    return LabelFree(
        accuracy=mean,
        answers=sums.answers,
        reading=(
            f"If its confidences are right, {mean:.1%} of {plural(sums.answers, 'answer')} are: an estimate that no"
            " label has confirmed."
        ),
    )


@remembered(128)
def _drift(sums: StoredSums, rows: int, counts: tuple[int, ...], validation_mean: float) -> Drift:
    found = metrics.confidence_drift(coarse_counts(sums.answers_C), counts)
    mean, chance = _label_free(sums).accuracy, f"p = {found.p_value:.2g}"
    both, of_rows = f"{mean:.1%} on average, {validation_mean:.1%} there", f"the {rows:,} validation rows"
    moved = (
        f"Confidences are not those of {of_rows}: {both}, and {found.distance:.1%} of the answers have moved across"
        f" some confidence ({chance}). What was measured on the validation rows may no longer hold."
    )
    same = (
        f"Confidences are much as on {of_rows}: {both}; at most {found.distance:.1%} of the answers have moved across"
        f" any confidence ({chance}; a warning needs p < {SIGNIFICANT:g} and {LARGE:.0%})."
    )
    return Drift(
        distance=found.distance,
        p_value=found.p_value,
        warning=found.warning,
        validation_rows=rows,
        mean_confidence=mean,
        validation_mean_confidence=validation_mean,
        reading=moved if found.warning else same,
    )


def _of_window(recent: LabelBlock, version: Version, asked: Asked) -> LabelBlock:
    kept_L = within(hour_of(recent.created_ms_L), hours_of(asked.since_ms, asked.until_ms))
    if asked.predicted_class is not None:
        kept_L &= recent.predicted_L == version.classes.index(asked.predicted_class)
    if asked.group and asked.group[0] == "tag":
        kept_L &= np.array([(tag or "") == asked.group[1] for tag in recent.tags], bool)
    return recent if kept_L.all() else chosen(recent, kept_L)


@remembered(128)
def _delay(rows: LabelBlock) -> Finding | None:
    """Of the newest 5,000 as they are now: half of them first came within the median delay."""
    confidence_L, correct_L = rows.confidence_L[-RECENT:], rows.correct_L[-RECENT:]
    delay_L = (rows.arrived_ms_L - rows.created_ms_L)[-RECENT:]
    if len(delay_L) < FEWEST:
        return None
    fast_L = delay_L <= np.median(delay_L)
    if fast_L.all():  # all came equally late
        return None
    halves = (CalibrationSums.from_top(confidence_L[half], correct_L[half]) for half in (fast_L, ~fast_L))
    try:
        found = metrics.label_delay(*halves)
    except ValueError:  # no confidence of which there are fast and slow ones
        return None
    reading = (
        f"{found.reading} At equal confidence, answers whose label came within"
        f" {_duration(float(np.median(delay_L)))} are right {abs(100 * found.difference):.1f} points"
        f" {'more' if found.difference >= 0 else 'less'} often than the others ({len(delay_L):,} labels,"
        f" p = {found.p_value:.2g})."
    )
    return Finding(warning=found.warning, p_value=found.p_value, statistic=found.z, reading=reading)


def _duration(ms: float) -> str:
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1000)):
        if ms >= 2 * size:
            return f"{ms / size:.0f} {unit}"
    return f"{ms:.0f} ms"


def _answers_of(rows: LabelBlock, sums: StoredSums) -> tuple[int, ...] | None:
    """The answers per cell that the rows stand for: if they are all labels, each with a propensity."""
    complete = np.array_equal(np.bincount(cell_of(rows.confidence_L), minlength=CELLS), sums.labelled.cells[0])
    return tuple(sums.answers_C.tolist()) if complete and np.isfinite(rows.propensity_L).all() else None


@remembered(128)
def _by_propensity(
    rows: LabelBlock, bins: int, level: float, answers: tuple[int, ...] | None
) -> WeightedFigures | None:
    """Sums hold no propensities, so this is of the labels that arrived last: 5,000, or as many as `last` asks for."""
    given_L = np.isfinite(rows.propensity_L)
    if np.count_nonzero(given_L) < FEWEST:
        return None
    parts = rows.confidence_L[given_L], rows.correct_L[given_L], rows.propensity_L[given_L]
    found = metrics.inverse_probability_ece(*parts, answers, bins=bins, level=level)
    of = f"From the {int(given_L.sum()):,} of the last {len(rows):,} labels whose answers came with a propensity."
    return _figures("propensity", found, of)


def _figures(how: str, found: WeightedEce, of: str = "") -> WeightedFigures:
    interval = found.interval
    conditions = {
        "strata": "Right for all answers if being labelled depends on the confidence only.",
        "propensity": "Right for all answers if the propensities given are.",
    }
    return WeightedFigures.model_validate(
        {
            "how": how,
            "ece": interval.ece,
            "ece_estimate": interval.estimate,
            "ece_lower": interval.lower,
            "ece_upper": interval.upper,
            "accuracy": found.accuracy,
            "signed_gap": found.signed_gap,
            "effective_n": found.effective_n,
            "reading": " ".join(part for part in (of, found.reading, conditions[how]) if part),
        }
    )
