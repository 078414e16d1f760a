"""Parts of reports: real metrics of simulated answers, histories of evidence, advice."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from trueodds import metrics
from trueodds.metrics import CalibrationSums
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import (
    Bin,
    Drift,
    ExpectedAccuracy,
    Finding,
    Labelling,
    Sensitivity,
    Slice,
    Trend,
    WeightedFigures,
)
from trueodds.reports.schemas.alarm import Acknowledgement, Advice, Alarm, AlarmOf, EvidencePoint
from trueodds.reports.slices import trend_of
from trueodds.sums.answers import AnswerSums

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
START = datetime(2026, 2, 20, tzinfo=UTC)
OFFLINE = {
    "bins": 15,
    "after": {"ece": 0.0121, "accuracy": 0.871, "mean_confidence": 0.874, "nll": 0.402, "brier": 0.19},
}
NUMBERS = ("accuracy", "mean_confidence", "signed_gap", "ece", "ece_estimate", "ece_lower", "ece_upper", "floor_mean")
MORE = ("floor_p95", "smooth_ece", "mce", "ks", "nll", "brier", "coverage", "labelling.weighted", "population")
ESTIMANDS = {
    name: f"{name}, of all answers in the same ranges, as far as the labels are a fair choice"
    for name in NUMBERS + MORE
}


def sums(rows: int, truth: Callable[[Any], Any], seed: int = 0) -> CalibrationSums:
    """Two classes, confidences .5 to 1 with many near 1, right with probability truth(confidence)."""
    rng = np.random.default_rng(seed)
    top_N = 1 - 0.5 * rng.beta(0.7, 1.6, rows)
    wrong_N = rng.random(rows) >= truth(top_N)
    return CalibrationSums.from_probabilities(np.stack([top_N, 1 - top_N], 1), wrong_N.astype(int))


def over(confidence: Any) -> Any:
    return confidence - 0.55 * (confidence - 0.5) ** 1.2


def right(confidence: Any) -> Any:
    return confidence


def bins_of(sums_of_labels: CalibrationSums, bins: int = 15) -> list[Bin]:
    table = sums_of_labels.bins(bins)
    lower_B, upper_B = metrics.binomial_interval(table.correct_B, table.count_B, level=0.95)
    rows = []
    for b, many in enumerate(table.count_B.tolist()):
        values = (table.mean_confidence_B[b], table.accuracy_B[b], lower_B[b], upper_B[b])
        confidence, accuracy, lower, upper = (float(v) if many else None for v in values)
        rows.append(
            Bin(
                lo=table.lo_B[b],
                hi=table.hi_B[b],
                count=int(many),
                mean_confidence=confidence,
                accuracy=accuracy,
                accuracy_lower=lower,
                accuracy_upper=upper,
                gap=accuracy - confidence if accuracy is not None and confidence is not None else None,
            )
        )
    return rows


def trend(truth: Callable[[Any], Any] = over, days: int = 22, *, rows: int = 180, change: int = 12) -> Trend:
    """Days, calibrated before `change`; one without answers, one without labels, one with three, fewer at the end."""
    periods = []
    for day in range(days):
        labelled = max(3, round(rows * min(1.0, (days - day) / 6)))
        labelled = 3 if day == 5 else 0 if day == 9 else labelled
        if day == 4:
            continue
        labels = sums(labelled or rows, right if day < change else truth, seed=100 + day)
        answers_C = (12 * rows * labels.cells[0] / labels.n).round().astype(np.int64)
        start_ms = int((START + timedelta(days=day)).timestamp() * 1000)
        periods.append((start_ms, AnswerSums(answers_C, labels if labelled else CalibrationSums.zero())))
    return trend_of("day", periods, ReportOptions())


def history(drift: float, blocks: int, seed: int, change: int = 90) -> list[EvidencePoint]:
    """log e-values that wander below 0 and rise by `drift` a block from the change on."""
    steps = np.random.default_rng(seed).normal(0, 0.25, blocks) - 0.01
    steps[change:] += drift
    level, points = 0.0, []
    for k, step in enumerate(steps.tolist()):
        level = max(level + step, -math.log(1 + math.log2(k + 2)))
        points.append(EvidencePoint(labels=20 * (k + 1), at=START + timedelta(hours=2 * k), log_e=level))
    return points


def null_of(null: str, points: list[EvidencePoint], threshold: float = 20) -> AlarmOf:
    first = next((p for p in points if p.log_e >= math.log(threshold)), None)
    what = (
        "The calibration error (ECE) of the answers that get labels was"
        if null == "ece"
        else "Some confidence is off by"
    )
    return AlarmOf.model_validate(
        {
            "null": null,
            "statement": f"{what} more than 0.02.",
            "pages": null == "ece",
            "tolerance": 0.02,
            "threshold": threshold,
            "state": "quiet" if first is None else "fired",
            "labels": points[-1].labels if points else 0,
            "log_e": points[-1].log_e if points else 0.0,
            "p_value": min(1.0, math.exp(-max((p.log_e for p in points), default=0.0))),
            "fired_at": first and first.at,
            "fired_after": first and first.labels,
            "history": points,
        }
    )


def alarm(drift: float, *, blocks: int = 140) -> Alarm:
    """Both nulls; the sensitive one gets three times the evidence."""
    nulls = [null_of("ece", history(drift, blocks, 1)), null_of("point", history(3 * drift, blocks, 2))]
    if nulls[0].state == "fired":
        text = (
            "The calibration error of this version is above 0.02: had it not been, so much evidence would come up in"
            f" at most 1 of 20 models, however long one looks. It fired after {nulls[0].fired_after:,} labels."
        )
        return Alarm(state="fired", reading=text, nulls=nulls)
    if nulls[1].state == "fired":
        return Alarm(state="notice", reading="Somewhere the confidence is off by more than 0.02.", nulls=nulls)
    return Alarm(state="quiet", reading="No evidence of a calibration error above 0.02.", nulls=nulls)


def acknowledged(alarm: Alarm) -> Alarm:
    who = Acknowledgement(who="Ada", why="New camera since Monday; <b>recalibrating</b> tonight.", at=NOW)
    nulls = [null.model_copy(update={"state": "acknowledged", "acknowledged": who}) for null in alarm.nulls[:1]]
    return alarm.model_copy(update={"state": "acknowledged", "nulls": nulls + alarm.nulls[1:]})


ADVICE = {
    "yes": "Recalibrating would help.",
    "no": "So far recalibrating would not have helped.",
    "not_known": "It is not clear yet whether recalibrating would help.",
}


def advice(helps: str = "yes") -> Advice:
    command = "trueodds recalibrate --url http://127.0.0.1:8000 --model street --version v1"
    return Advice.model_validate(
        {
            "helps": helps,
            "labels": 2800,
            "served_log_loss": 0.4312,
            "recalibrated_log_loss": 0.4021,
            "log_e": 41.2,
            "reading": ADVICE[helps],
            "basis": "Of each of 2,800 labels a recalibration on the ones before it would have been surprised by 0.402"
            " nats on average, the served confidences were by 0.431.",
            "command": command if helps == "yes" else None,
        }
    )


def labelling(warning: bool) -> Labelling:
    how = "strata"
    figures = {"ece": 0.061, "ece_estimate": 0.058, "ece_lower": 0.04, "ece_upper": 0.079, "accuracy": 0.78}
    return Labelling(
        coverage=0.0833,
        coverage_reading="8.3% of the answers have labels: 2,800 of 33,600.",
        choice=Finding(
            warning=warning,
            p_value=3e-7 if warning else 0.41,
            statistic=61.2,
            reading="Labels are not spread like the answers: sure answers are labelled less often."
            if warning
            else "Labels are spread over confidences like the answers.",
        ),
        weighted=[
            WeightedFigures.model_validate(
                figures
                | {
                    "how": how,
                    "signed_gap": -0.057,
                    "effective_n": 1834,
                    "reading": "Weighted to look like all answers the ECE is 0.058 (0.040 to 0.079).",
                }
            )
        ],
        delay=Finding(warning=False, p_value=0.3, statistic=1.0, reading="Fast and slow labels agree."),
        sensitivity=[
            Sensitivity(
                ratio=2,
                ece=0.02,
                accuracy=0.87,
                signed_gap=-0.02,
                lowest_accuracy=0.07,
                highest_accuracy=0.99,
                impossible=0,
                reading="The ECE would be 0.020.",
            )
        ],
        expected_accuracy=ExpectedAccuracy(
            accuracy=0.856,
            lower=0.852,
            upper=0.86,
            answers=33600,
            reading="If they hold, 85.6% are right.",
        ),
        drift=Drift(
            distance=0.08,
            p_value=1e-12,
            warning=warning,
            validation_rows=5000,
            mean_confidence=0.856,
            validation_mean_confidence=0.884,
            reading="Answers are less sure than on the validation rows: 85.6% on average instead of 88.4%.",
        ),
    )


def slices(names: tuple[str, ...], rows: int = 300, truth: Callable[[Any], Any] = over) -> list[Slice]:
    parts = []
    for k, name in enumerate(names):
        named = metrics.summary(part := sums(rows + 10 * k, truth if k % 2 else right, seed=50 + k), bins=15)
        lower, upper = metrics.binomial_interval(part.cells[2].sum(), part.n, level=0.95)
        known = {key: named[key] for key in ("accuracy", "mean_confidence", "signed_gap", "ece", "floor_p95")}
        p_value = metrics.ece_test(part).p_value
        parts.append(
            Slice.model_validate(
                known
                | {"name": name, "answers": 12 * part.n, "labelled": part.n, "p_value": p_value}
                | {"more_than_chance": p_value < 0.01}
                | {"accuracy_lower": float(lower), "accuracy_upper": float(upper)}
            )
        )
    return [*parts, Slice(name="(other)", answers=7, labelled=0)]
