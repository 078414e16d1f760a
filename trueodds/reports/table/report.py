"""The report of a table of answers: of all of them, looked at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.reports.checks import first_checks, is_off
from trueodds.reports.composition import report_of
from trueodds.reports.options import Options
from trueodds.reports.schemas import Report, Verdict
from trueodds.reports.slices import slices_of, tags_of, trend_of
from trueodds.reports.table.acting import acting_threshold
from trueodds.reports.table.answers import Answers
from trueodds.reports.table.chances import evenly_labelled
from trueodds.reports.table.promise import may_act
from trueodds.reports.table.sums import TrendUnit, positive_sums_of, sums_by, sums_by_period, sums_of
from trueodds.reports.verdict import RATIO_TOLERANCE, TOLERANCE
from trueodds.sums.answers import AnswerSums

By = Literal["class", "tag"]
MOST_GROUPS = 1000
"""Different tags, classes or versions; more are rather the names of single answers."""
NEXT_STEPS: dict[Verdict, str] = {"no_labels": "Fill in the true classes of some answers, chosen by chance."}


def report_of_answers(
    answers: Answers,
    options: Options | None = None,
    *,
    by: By | None = None,
    trend: TrendUnit | None = None,
    tolerance: float = TOLERANCE,
    ratio_tolerance: float = RATIO_TOLERANCE,
    positive: str | None = None,
) -> Report:
    """The report; where the model is off, with what to look at first: time, tag, class.

    There is no alarm: the evidence of an alarm is for labels that go on coming in. Of a table that is there as a whole
    the test of calibration at one look knows more.

    `positive`: the class of two whose probability leads; `ratio_tolerance` is of its expected / observed number.

    Raises:
        FileError: a table that does not say what `by`, `trend` or `positive` asks for.
        ConfigError: a positive class that is none of two classes.
    """
    options, groups = replace(options or Options(), one_look=True), answers.groups
    if by == "tag" and groups.tags is None:
        raise FileError(f"{answers.source} has no column tag, which --by tag needs")
    if by == "class" and answers.predicted is None:
        raise FileError(f"{answers.source} names no predicted classes, which --by class needs")
    if trend and groups.time_ms_N is None:
        raise FileError(f"{answers.source} has no column time, which --trend needs")
    versions = _sums_by(answers, "versions", groups.versions)
    report = report_of(
        answers.source,
        next(iter(versions)) if len(versions) == 1 else "",
        sums_of(answers),
        options,
        positive=None if positive is None else positive_sums_of(answers, positive),
        tolerance=tolerance,
        ratio_tolerance=ratio_tolerance,
        versions=slices_of(versions, options) if len(versions) > 1 else (),
        classes=slices_of(_sums_by(answers, "classes", answers.predicted), options) if by == "class" else None,
        tags=tags_of(_sums_by(answers, "tags", groups.tags), options) if by == "tag" else None,
        trend=trend_of(*sums_by_period(answers, trend), options, tolerance) if trend else None,
        notes=answers.notes,
        next_steps=NEXT_STEPS,
    )
    if report.labelled:
        sample, drawn = evenly_labelled(answers)
        report.may_act = may_act(acting_threshold(sample), drawn)
    if is_off(report):
        if trend is None and groups.time_ms_N is not None:
            trend = "auto"
        report.checks = first_checks(
            report.trend or (trend_of(*sums_by_period(answers, trend), options) if trend else None),
            report.tags or tags_of(_sums_by(answers, "tags", groups.tags), options),
            report.classes or slices_of(_sums_by(answers, "classes", answers.predicted), options),
            positive=positive is not None,
        )
    return report


def _sums_by(answers: Answers, name: str, column: Texts | None) -> dict[str, AnswerSums]:
    """Empty where the table does not say.

    Raises:
        FileError: more different names than groups have.
    """
    if column is None:
        return {}
    if len(column.values) > MOST_GROUPS:
        problem = f"{answers.source} has {len(column.values):,} different {name}; at most {MOST_GROUPS:,} are compared"
        raise FileError(f"{problem}: give those that many answers share, or leave the column out")
    return sums_by(answers, column)
