"""The report of a table in a terminal: the result, the figures, and the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trueodds.reports.display.figure_table import LEVELS, at_least_rows, figure_rows, ordered_rows, positive_rows
from trueodds.reports.schemas import (
    Bin,
    ClassShares,
    Decisions,
    ExpectedDecisions,
    OrderedFigures,
    Report,
    Slice,
    TrendPoint,
)
from trueodds.reports.schemas.judge import JudgeFigures, PoweredFigure
from trueodds.reports.schemas.sets import LevelCoverage
from trueodds.reports.words import DASH, align, decimal, digits_of, level, percent, period, signed_points, span
from trueodds.texts import plural

MOST_LINES = 40
"""Largest number of lines of a table by class, tag or time. The JSON file and the page hold all of them."""


def text_of(report: Report) -> str:
    """Format a report as lines of text. Its tables are at most 100 columns wide."""
    version = f", version {report.version}" if report.version else ""
    parts = [[f"{report.model}{version}: {report.headline}", *(check.reading for check in report.checks)]]
    if report.labelled:
        parts.append([f"Intervals at {level(report.level)}", *align(figure_rows(vars(report)), "<><<")])
        p = report.positive
        if p:
            title = f"p({p.label}), over all of 0% to 100%; intervals at {level(report.level)}"
            parts.insert(1, [title, *align(positive_rows(p), "<><<")])
            parts.insert(2, _bins(p.bins, f"p({p.label})", p.label))
            parts[3].insert(0, "The more probable class")
        else:
            parts.append(_bins(report.bins, "confidence", "right"))
        if report.ordered:
            parts.append(_ordered(report.ordered, report.level))
        if report.may_act:
            parts.append(["Acting alone", report.may_act.reading])
        if report.decisions:
            parts.append(_decisions(report.decisions))
    if report.judge:
        parts.append(_judge_lines(report.judge, report.level))
    parts += [_set_lines(one) for one in report.sets.levels] if report.sets else []
    parts += [_expected(one) for one in report.expected]
    parts += [] if report.class_shares is None else [_class_shares(report.class_shares)]
    tables = {
        "version": report.versions,
        "predicted class": report.classes,
        "tag": report.tags,
        "confidence source": report.confidence_sources,
    }
    whose = ["For the more probable class"] if report.positive else []
    parts += [[*whose, *_table(name, [(row.name, row) for row in rows])] for name, rows in tables.items() if rows]
    if report.trend:
        points = report.trend.points
        named = [(period(point.start, report.trend.unit), point) for point in points]
        parts.append([*whose, *_table(f"{report.trend.unit}, UTC", named)])
    if readings := _readings(report):
        parts.append(["Keep in mind", *(f"- {reading}" for reading in readings)])
    return "\n\n".join("\n".join(part) for part in parts)


def _judge_lines(figures: JudgeFigures, nominal: float) -> list[str]:
    """Format the estimates from human and judge's labels, and the judge's error rates."""
    lines = ["Human labels and a judge", figures.reading]
    head = ("", "answers", "human labels", "estimate", level(nominal), "human labels alone", "worth")
    named = [("accuracy", figures.accuracy, percent, "percent"), ("gap", figures.signed_gap, _points, "signed")]
    if figures.prevalence:
        named.insert(1, (f"share of {figures.label}", figures.prevalence, percent, "percent"))
    counts = (f"{figures.answers:,}", f"{figures.labels:,}")
    rows = [(name, *counts, *_estimate_cells(one, form, how)) for name, one, form, how in named if one]
    for part in figures.bins:
        if part.gap:
            name = f"gap, {percent(part.lo)} {DASH} {percent(part.hi)}"
            rows.append((name, f"{part.answers:,}", f"{part.labels:,}", *_estimate_cells(part.gap, _points, "signed")))
    if rows:
        lines += _cut(align([head, *rows], "<>>>>>>"))
    if figures.classes:
        head_of_classes = ("class", "human labels", "judge's labels", "sensitivity", "", "specificity", "")
        classes = [
            (
                one.name,
                f"{one.labels:,}",
                f"{one.judge_labels:,}",
                percent(one.sensitivity),
                span(one.sensitivity_lower, one.sensitivity_upper, "percent"),
                percent(one.specificity),
                span(one.specificity_lower, one.specificity_upper, "percent"),
            )
            for one in figures.classes
        ]
        lines += ["", "Error rates of the judge", *_cut(align([head_of_classes, *classes], "<>>>>>>"))]
    if figures.confusions:
        confused = [(one.human, one.judge, f"{one.answers:,}") for one in figures.confusions]
        lines += ["", "Confused classes", *_cut(align([("human label", "judge's label", "answers"), *confused], "<<>"))]
    return lines


def _estimate_cells(one: PoweredFigure, form: Callable[[float | None], str], how: str) -> tuple[str, str, str, str]:
    """Format an estimate, its interval, that of the human labels alone, and what the judge is worth."""
    return (
        form(one.value),
        span(one.lower, one.upper, how),
        span(one.human_lower, one.human_upper, how),
        f"{one.saving:.2f}",
    )


def _points(value: float | None) -> str:
    return signed_points(value, "")


def _expected(expected: ExpectedDecisions) -> list[str]:
    """Format the expected results of alerts on the answers without a label."""
    lines = ["Answers without a label", expected.reading]
    if expected.withdrawn:
        return lines
    first = "class" if expected.about == "classes" else f"above p({expected.label})"
    head = (first, "alerts", "share", "precision", "interval", "recall", "interval", "specificity", "F1")
    named = [(percent(one.threshold), one) for one in expected.decisions]
    named += [(one.name, one.decision) for one in expected.classes]
    rows = [
        (
            name,
            f"{one.alerts:,}",
            percent(one.alert_share),
            percent(one.precision.value),
            span(one.precision.lower, one.precision.upper, "percent"),
            percent(one.recall.value),
            span(one.recall.lower, one.recall.upper, "percent"),
            percent(one.specificity.value),
            percent(one.f1.value),
        )
        for name, one in named
    ]
    return [*lines, *_cut(align([head, *rows], ">>>>>>>>>"))]


def _set_lines(one: LevelCoverage) -> list[str]:
    """Format the coverage of conformal sets: of all, by the size of the set, by class and by tag."""
    lines = [f"Sets of level {one.level:.6g}", one.reading]
    tables = {"classes in the set": one.sizes, "true class": one.classes, "tag": one.tags if len(one.tags) > 1 else []}
    for name, groups in tables.items():
        rows = [
            (group.name, f"{group.labels:,}", percent(group.coverage), span(group.lower, group.upper, "percent"))
            for group in groups
        ]
        lines += ["", *_cut(align([(name, "labels", "covered", level(one.confidence)), *rows], "<>>>"))] if rows else []
    return lines


def _class_shares(shares: ClassShares) -> list[str]:
    """Format the class shares of the answers."""
    lines = ["Class shares without labels", shares.reading]
    if not shares.classes:
        return lines
    rows = [("class", "reference", "EM", "interval", "BBSE", "interval")]
    rows += [
        (
            one.name,
            percent(one.reference),
            percent(one.em.value),
            span(one.em.lower, one.em.upper, "percent"),
            percent(one.bbse.value),
            span(one.bbse.lower, one.bbse.upper, "percent"),
        )
        for one in shares.classes
    ]
    return [*lines, *_cut(align(rows, ">>>>>>"))]


def _readings(report: Report) -> list[str]:
    """Return the cautions, and for an unlabelled table also the expected accuracy."""
    if report.labelled or report.labelling.expected_accuracy is None:
        return report.cautions
    return [*report.cautions, report.labelling.expected_accuracy.reading]


def _bins(bins: Sequence[Bin], name: str, share: str) -> list[str]:
    """Format the table of bins."""
    rows = [(name, "labels", "says", share, "interval", "gap")]
    digits = digits_of(edge for b in bins for edge in (b.lo, b.hi))
    rows += [
        (
            f"{percent(b.lo, digits)} {DASH} {percent(b.hi, digits)}",
            f"{b.count:,}",
            percent(b.mean_confidence, digits),
            percent(b.accuracy, digits),
            span(b.accuracy_lower, b.accuracy_upper, "percent", digits),
            signed_points(b.gap, "", digits),
        )
        for b in bins
        if b.count
    ]
    return _cut(align(rows, ">>>>>>"))


def _ordered(ordered: OrderedFigures, nominal: float) -> list[str]:
    """Format the figures of ordered classes."""
    title = f"Levels, {ordered.levels[0]} to {ordered.levels[-1]}; intervals at {level(nominal)}"
    return [title, *align(ordered_rows(ordered), "<><<"), ordered.reading, *_cut(align(at_least_rows(ordered), LEVELS))]


def _decisions(decisions: Decisions) -> list[str]:
    """Format the table of alert thresholds."""
    shown = ("precision", "recall", "false alarms")
    head = ("alert above", "alerts", "share", *(text for name in shown for text in (name, "interval")))
    rows: list[tuple[str, ...]] = [head]
    for t in decisions.thresholds:
        shares: list[str] = []
        for share in (t.precision, t.recall, t.false_alarm_rate):
            known = share.value is not None
            shares += percent(share.value), span(share.lower, share.upper, "percent") if known else DASH
        rows.append((percent(t.threshold), f"{t.alerts:,}", percent(t.alert_rate.value), *shares))
    reading = [decisions.reading] if decisions.reading else []
    return [f"Alerts by p({decisions.label})", *reading, *align(rows, ">>>>>>>>>")]


def _table(name: str, rows: Sequence[tuple[str, Slice | TrendPoint]]) -> list[str]:
    """Format a table of groups or periods."""
    lines: list[tuple[str, ...]] = [(name, "answers", "labels", "says", "right", "ECE", "by chance up to", "")]
    for title, row in rows:
        gap = (row.mean_confidence, row.accuracy)
        counts = (f"{row.answers:,}", f"{row.labelled:,}", *map(percent, gap))
        more = row.ece is not None and row.floor_p95 is not None and row.ece > row.floor_p95
        lines.append((title, *counts, decimal(row.ece), decimal(row.floor_p95), "more than chance" if more else ""))
    return _cut(align(lines, "<>>>>>><"))


def _cut(lines: list[str]) -> list[str]:
    """Shorten a table to MOST_LINES lines."""
    more = len(lines) - 1 - MOST_LINES
    return lines if more <= 0 else [*lines[: MOST_LINES + 1], f"and {plural(more, 'more line')}: --json, --html"]
