"""Reports for the page's tests, with every part that may be there or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tests.service.page_parts import (
    ESTIMANDS,
    OFFLINE,
    START,
    acknowledged,
    advice,
    alarm,
    bins_of,
    labelling,
    null_of,
    over,
    right,
    slices,
    sums,
    trend,
)
from trueodds import metrics
from trueodds.metrics import CalibrationSums
from trueodds.processes.choices import TOLERANCE
from trueodds.reports import ReportOptions, first_checks, report_of
from trueodds.reports.schemas import Ece, KnownVersion, Report, Trend, TrendPoint, Window, WorstBin
from trueodds.reports.schemas.alarm import Alarm, EvidencePoint
from trueodds.reports.verdict.headline import headline
from trueodds.reports.verdict.rules import verdict_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass, PositiveSums, sums_of_top

KNOWN = [
    KnownVersion(model="street", version="4f1c09aa", role="default"),
    KnownVersion(model="street", version="91d0e2bc", role="published"),
    KnownVersion(model="street", version="07aa51c3", role="past"),
    KnownVersion(model="street~shadow", version="91d0e2bc", role="shadow"),
]


def without_labels(answers: int = 0) -> Report:
    words = "The model has given no answers yet. Send inputs to POST /predict. Every answer has an id."
    waiting = f"{answers:,} answers, none with a label yet, so the accuracy is unknown."
    return Report(
        model="street",
        version="4f1c09aa",
        verdict="no_labels" if answers else "no_answers",
        reading=waiting if answers else words,
        headline=waiting if answers else words,
        cautions=[],
        answers=answers,
        labelled=0,
        coverage=0.0 if answers else None,
        error=None,
        level=0.95,
        bins=bins_of(CalibrationSums.zero()),
        offline={},
        known=KNOWN[:1],
    )


def report(labels: CalibrationSums, *, answers: int | None = None, bins: int = 15, **parts: Any) -> Report:
    """All numbers of some sums; `parts` are set as they are."""
    named = metrics.summary(labels, bins=bins)
    answers = labels.n if answers is None else answers
    table = bins_of(labels, bins)
    worst = max((b for b in table if b.count), key=lambda b: abs(b.gap or 0))
    lower, upper = metrics.binomial_interval(labels.cells[2].sum(), labels.n, level=0.95)
    answers_C = labels.cells[0].astype(np.int64)
    answers_C[0] += answers - labels.n
    stored, within = AnswerSums(answers_C, labels), bool(named["ece_upper"] <= TOLERANCE)
    verdict = verdict_of(stored, named, parts.get("alarm"), parts.get("advice"), within=within)
    first = headline(verdict, stored, {**named, "bins": table}, ReportOptions(), TOLERANCE)
    cautions = [
        "The interval is for one look at this many labels: checked after every label, it will miss the true value at"
        " some time."
    ]
    fields: dict[str, Any] = {
        **named,
        "model": "street",
        "version": "4f1c09aa",
        "verdict": verdict,
        "headline": first,
        "reading": " ".join([first, *cautions]),
        "cautions": cautions,
        "answers": answers,
        "labelled": labels.n,
        "coverage": labels.n / answers,
        "accuracy_lower": float(lower),
        "accuracy_upper": float(upper),
        "level": 0.95,
        "smooth_ece": metrics.smooth_ece(labels),
        "mce_bin": WorstBin(lo=worst.lo, hi=worst.hi, count=worst.count),
        "bins": table,
        "offline": OFFLINE,
        "known": KNOWN,
    }
    return Report.model_validate(fields | parts)


def full(**parts: Any) -> Report:
    """Over-confident, the alarm fired, every part there."""
    labels = sums(2800, over)
    named = metrics.summary(labels)
    kinds = {
        kind: Ece(
            ece=named["ece"] * factor,
            estimate=named["ece_estimate"],
            lower=named["ece_lower"],
            upper=named["ece_upper"],
            floor_mean=named["floor_mean"],
            floor_p95=named["floor_p95"],
        )
        for kind, factor in (("width", 1.0), ("mass", 1.02))
    }
    everything: dict[str, Any] = {
        "signed_gap_lower": named["signed_gap"] - 0.03,
        "signed_gap_upper": named["signed_gap"] + 0.03,
        "nll_lower": named["nll"] - 0.02,
        "nll_upper": named["nll"] + 0.02,
        "brier_lower": named["brier"] - 0.01,
        "brier_upper": named["brier"] + 0.01,
        "ks": metrics.ks_error(labels),
        "ks_p_value": 1e-9,
        "ece_by_binning": kinds,
        "estimands": ESTIMANDS,
        "versions": slices(("4f1c09aa", "91d0e2bc"), 1400),
        "trend": trend(),
        "labelling": labelling(True),
        "alarm": alarm(0.14),
        "advice": advice(),
        "checks": first_checks(trend(), slices(("day", "night")), slices(("cat", "dog", "hare"))),
    }
    return report(labels, answers=33_600, **(everything | parts))


def calibrated(rows: int = 60_000) -> Report:
    parts: dict[str, Any] = {
        "alarm": alarm(0.0),
        "trend": trend(right),
        "labelling": labelling(False),
        "advice": advice("no"),
    }
    return report(sums(rows, right), answers=12 * rows, **parts)


def few_labels() -> Report:
    points = [TrendPoint(start=START, answers=90, labelled=0), trend().points[0]]
    one = [EvidencePoint(labels=20, at=START, log_e=-0.4)]
    quiet = Alarm(state="quiet", reading="Quiet.", nulls=[null_of("ece", one), null_of("point", [])])
    return report(
        sums(35, right),
        answers=800,
        trend=Trend(
            unit="hour", points=[points[0], points[1].model_copy(update={"start": START + timedelta(hours=5)})]
        ),
        alarm=quiet,
    )


def many_classes() -> Report:
    """A hundred classes, and a window."""
    names = tuple(f"class {k}" for k in range(100))
    window = Window(since=datetime(2026, 3, 7, 9, tzinfo=UTC), predicted_class=None)
    return full(classes=slices(names, 30), window=window)


def hostile() -> Report:
    """Names, tags and words that would like to be markup."""
    nasty = "\"><script>alert(1)</script>'&<img src=x onerror=alert(2)>"
    return full(
        model=nasty,
        version=nasty,
        tags=slices((nasty, "", "plain")),
        window=Window(tag=nasty, predicted_class=nasty),
        known=[KnownVersion(model=nasty, version=nasty, role="default"), *KNOWN],
        headline=nasty,
        cautions=[nasty],
        estimands={"ece": nasty, nasty: nasty},
        offline={"after": {"ece": nasty, "nll": None, "accuracy": True}},
        alarm=acknowledged(alarm(0.14)).model_copy(update={"reading": nasty}),
        advice=advice().model_copy(update={"reading": nasty, "basis": nasty, "command": nasty}),
    )


LONG = "a-tag-without-a-blank-" * 14
"""300 characters that no line can be broken at."""


def long_names() -> Report:
    rows = slices((LONG, "day")), slices((LONG, "dog"))
    parts: dict[str, Any] = {"tags": rows[0], "classes": rows[1], "checks": first_checks(trend(), *rows)}
    parts |= {"window": Window(tag=LONG, predicted_class=LONG), "cautions": [LONG]}
    return full(model=LONG, version=LONG, alarm=acknowledged(alarm(0.14)), **parts)


def long_positive_class() -> Report:
    rng = np.random.default_rng(0)
    p_N = rng.uniform(0, 1, 2000)
    positive_N = rng.random(2000) < p_N / 2
    by_p = PositiveClass.sums_of(p_N, positive_N)
    top, of_p = (AnswerSums(sums.cells[0].astype(np.int64), sums) for sums in (sums_of_top(by_p), by_p))
    positive = PositiveSums(LONG, of_p)
    return report_of("street", "4f1c09aa", top, positive=positive, alarm=alarm(0.0), advice=advice("no"))


def enormous() -> Report:
    """Evidence far beyond every axis, and beyond what a float's exponential holds."""
    points = [EvidencePoint(labels=20 * k, at=START, log_e=9.0 * k) for k in range(1, 200)]
    nulls = [null_of("ece", points), null_of("point", points[:1])]
    return full(alarm=Alarm(state="fired", reading="Fired.", nulls=nulls))


ALL: dict[str, Callable[[], Report]] = {
    "no answers": without_labels,
    "no labels": lambda: without_labels(1234),
    "few labels": few_labels,
    "calibrated": calibrated,
    "bare": lambda: report(sums(2000, over), answers=4000, known=[]),
    "over-confident": full,
    "acknowledged": lambda: full(alarm=acknowledged(alarm(0.14))),
    "notice": lambda: full(alarm=alarm(0.04)),
    "shadow": lambda: full(model="street~shadow", version="91d0e2bc", alarm=None, advice=None, trend=None),
    "many classes": many_classes,
    "hostile": hostile,
    "long names": long_names,
    "long positive class": long_positive_class,
    "enormous": enormous,
    "1,000 bins": lambda: report(sums(60_000, over), bins=1000),
}
