"""The live calibration report: every number from `pipeline.metrics`, and what they mean in plain words."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline import metrics
from pipeline.metrics import CELLS, Bins, CalibrationSums
from service.errors import ServiceError
from service.records import StoredSums, Version
from service.report_schemas import Bin, Report, Verdict, WorstBin

MAX_BINS = 1000
MEASURED_FROM = 500
"""Labels from which the coverage of the ECE interval was measured."""


def check_bins(bins: int) -> None:
    """Raise ServiceError 422 unless `bins` divides 3,000 and is at most 1,000."""
    if not 1 <= bins <= MAX_BINS or CELLS % bins:
        allowed = (
            f"the divisors of {CELLS} up to {MAX_BINS} (10, 15, 20, 25, 50, 100, ...), so that bins are whole cells"
        )
        raise ServiceError(422, "invalid_parameter", f"bins = {bins}: allowed are {allowed}")


def report(version: Version, sums: StoredSums, *, bins: int = 15, level: float = 0.95) -> Report:
    """Numbers and their reading; null where there are no labels."""
    numbers = _numbers(sums.labelled, bins, level) if sums.labelled.n else {}
    verdict = _verdict(sums, numbers)
    table = _table(sums.labelled.bins(bins), level)
    headline, cautions = _headline(verdict, sums, numbers, table), _cautions(sums)
    return Report(
        model=version.model,
        version=version.version,
        verdict=verdict,
        reading=" ".join([headline, *cautions]),
        headline=headline,
        cautions=cautions,
        answers=sums.answers,
        labelled=sums.labelled.n,
        coverage=sums.labelled.n / sums.answers if sums.answers else None,
        level=level,
        bins=table,
        offline=version.metrics,
        **numbers,
    )


def _numbers(sums: CalibrationSums, bins: int, level: float) -> dict[str, Any]:
    table = sums.bins(bins)
    worst = int(np.abs(np.nan_to_num(table.accuracy_B - table.mean_confidence_B)).argmax())
    worst_bin = WorstBin(lo=table.lo_B[worst], hi=table.hi_B[worst], count=int(table.count_B[worst]))
    return {**metrics.summary(sums, bins=bins, level=level), "mce_bin": worst_bin}


def _table(table: Bins, level: float) -> list[Bin]:
    lower_B, upper_B = metrics.binomial_interval(table.correct_B, table.count_B, level=level)
    columns = (table.mean_confidence_B, table.accuracy_B, lower_B, upper_B, table.accuracy_B - table.mean_confidence_B)
    names = ("mean_confidence", "accuracy", "accuracy_lower", "accuracy_upper", "gap")
    rows = []
    for b, count in enumerate(table.count_B.tolist()):
        means = {name: float(column[b]) if count else None for name, column in zip(names, columns, strict=True)}
        rows.append(Bin(lo=table.lo_B[b], hi=table.hi_B[b], count=int(count), **means))
    return rows


def _verdict(sums: StoredSums, numbers: dict[str, Any]) -> Verdict:
    if not sums.answers:
        return "no_answers"
    if not numbers:
        return "no_labels"
    if numbers["ece"] <= numbers["floor_p95"]:
        return "cannot_tell"
    if abs(numbers["signed_gap"]) < numbers["ece"] / 2:
        return "uneven"
    return "over_confident" if numbers["signed_gap"] < 0 else "under_confident"


def _headline(verdict: Verdict, sums: StoredSums, numbers: dict[str, Any], table: list[Bin]) -> str:
    if verdict == "no_answers":
        return "Nothing has been asked yet. Send images to POST /predict; every answer has an id."
    if verdict == "no_labels":
        found = f"{sums.answers:,} answers, none with a label yet, so nobody knows how often they are right."
        return f"{found} Send the true labels to POST /feedback with the ids of the answers."
    counts = f"{sums.labelled.n:,} of {sums.answers:,} answers have labels."
    if verdict == "cannot_tell":
        return (
            f"{counts} On them the model claims {_percent(numbers['mean_confidence'])} on average and is right"
            f" {_percent(numbers['accuracy'])} of the time. Its calibration error, {numbers['ece']:.3f}, is no larger"
            f" than chance alone would show (up to {numbers['floor_p95']:.3f}): there is no sign of miscalibration,"
            " or there are too few labels to tell."
        )
    sign = {"over_confident": -1, "under_confident": 1}.get(verdict, 0)  # the example must bear the verdict out
    fitting = [b for b in table if b.gap is not None and b.gap * sign >= 0]
    where = max(fitting, key=lambda b: abs(b.gap or 0) * b.count)
    advice = {
        "over_confident": "The model is over-confident: trust its percentages less than they say, and recalibrate.",
        "under_confident": "The model is under-confident: it is right more often than it says. Recalibrate.",
    }.get(verdict, "It is too sure in some ranges and not sure enough in others; the table shows where. Recalibrate.")
    return (
        f"{counts} When it says {_percent(where.mean_confidence or 0)} it is right {_percent(where.accuracy or 0)} of"
        f" the time ({where.count:,} answers). Its calibration error is {numbers['ece']:.3f}; chance alone would show"
        f" up to {numbers['floor_p95']:.3f}, so this is more than chance explains. {advice}"
    )


def _cautions(sums: StoredSums) -> list[str]:
    labelled = sums.labelled.n
    if not labelled:
        return []
    few = (
        f"Fewer than {MEASURED_FROM} labels: the interval's coverage was measured from {MEASURED_FROM} on,"
        " so take it as a rough guide."
    )
    cautions = [few] if labelled < MEASURED_FROM else []
    cautions.append("The interval is for one look at this many labels: watching it after every label will cry wolf.")
    if labelled < sums.answers:
        cautions.append(
            f"The other {sums.answers - labelled:,} answers are unknown: if wrong answers get their labels more"
            " often, or sooner, than right ones, these numbers mislead."
        )
    return cautions


def _percent(share: float) -> str:
    """Whole percents, but never a rounded 100% or 0% for what is not."""
    digits = 1 if 0 < share < 0.01 or 0.99 < share < 1 else 0
    text = f"{100 * share:.{digits}f}%"
    return {"100.0%": "over 99.9%", "0.0%": "under 0.1%"}.get(text, text)
