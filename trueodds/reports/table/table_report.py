"""The report of a table of answers at one look, from their sums by class, tag, version and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.metrics import CalibrationRows
from trueodds.metrics.labelling.prior_shift import MOST_CLASSES
from trueodds.processes.choices import MOST_RATIO, TOLERANCE, ReportBy, TrendUnit
from trueodds.reports.before_labels.class_shares import shares_of_rows
from trueodds.reports.before_labels.expected_results import LabelEvidence, expected_of_classes, expected_of_positive
from trueodds.reports.composition import report_of
from trueodds.reports.data import LabelledRows
from trueodds.reports.first_checks import first_checks, is_off
from trueodds.reports.labelling import labelling_of
from trueodds.reports.options import ReportOptions
from trueodds.reports.resolution import RoundedFigures, rounded_figures
from trueodds.reports.schemas import MOST_MINUTES, ClassShares, ExpectedDecisions, Labelling, Report, Unit, Verdict
from trueodds.reports.schemas.sets import SetCoverage
from trueodds.reports.slices import slices_of, sources_of, tags_of, trend_of
from trueodds.reports.table.acting_threshold import acting_threshold, may_act, sample_evenly
from trueodds.reports.table.judge_figures import judge_figures
from trueodds.reports.table.set_rows import SetRows, coverage_of
from trueodds.reports.table.table_content import Answers, positive_rows_of, propensities_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS, cell_of
from trueodds.sums.hours import MINUTE_MS
from trueodds.sums.ordered import LevelSums, OrderedSums, check_level_names
from trueodds.sums.positive import PositiveSums
from trueodds.sums.rounding import summing_to_1
from trueodds.sums.sums import CalibrationSums

UNITS: tuple[Unit, ...] = get_args(Unit)
_CODES: dict[Unit, Literal["m", "h", "D", "M"]] = {"minute": "m", "hour": "h", "day": "D", "month": "M"}
MAX_POINTS = 120
"""Largest number of points of a trend if no unit is requested, unless it is by month."""
MOST_GROUPS = 1000
"""Largest number of different tags, classes or versions. More are probably names of single answers."""
NEXT_STEPS: dict[Verdict, str] = {"no_labels": "Fill in the true classes of some answers, chosen at random."}


def report_of_answers(
    answers: Answers,
    options: ReportOptions | None = None,
    *,
    by: ReportBy | None = None,
    trend: TrendUnit | None = None,
    tolerance: float = TOLERANCE,
    ratio_tolerance: float = MOST_RATIO,
    positive: str | None = None,
    ordered: bool = False,
    fit_rows: Answers | None = None,
    judge: str | None = None,
    reference: Answers | None = None,
) -> Report:
    """Report on the answers of a table. If the model is off, the report also says where: time, tag, class.

    There is no alarm, because an alarm's evidence is for labels that keep arriving. On a complete table the test of
    calibration at one look is more powerful.

    Args:
        answers: Answers of the table.
        options: Bins and confidence level.
        by: Add a table by class, by tag or by source of the confidence.
        trend: Add a trend with this unit.
        tolerance: Largest acceptable ECE.
        ratio_tolerance: Largest acceptable expected / observed positives.
        positive: The positive class of two. The report then begins with the figures of its probability.
        ordered: The classes are levels, the lowest first.
        fit_rows: The rows that fitted the calibrator, with their calibrated probabilities. The limits of expected
            precision and recall then allow for their number.
        judge: Column with a judge's labels, with which the table was read.
        reference: Labelled rows from before the shift. The report then has the class shares of the answers, if only
            these have changed.

    Raises:
        FileError: The table lacks the column that `by`, `trend` or `positive` needs, or the probabilities that
            `ordered` needs; a label of the judge cannot be used.
        ConfigError: The positive class is not one of two classes, or ordered classes are not in ascending order.
    """
    return report_of_table(
        _RowsOfTable(answers),
        options,
        by=by,
        trend=trend,
        tolerance=tolerance,
        ratio_tolerance=ratio_tolerance,
        positive=positive,
        ordered=ordered,
        fit_rows=fit_rows,
        judge=judge,
        reference=reference,
    )


class ReportTable(Protocol):
    """A table whose sums are known: `Answers`, or the sums that an engine made of them (`TableSums`)."""

    @property
    def source(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def total(self) -> AnswerSums: ...
    @property
    def has_classes(self) -> bool: ...
    def has(self, column: str) -> bool: ...
    def by(self, column: str) -> dict[str, AnswerSums]: ...
    def periods(self, unit: TrendUnit) -> tuple[Unit, list[tuple[int, AnswerSums]]]: ...
    def positive(self, name: str) -> PositiveSums: ...
    def rounding(self, level: float) -> RoundedFigures | None: ...


def report_of_table(
    table: ReportTable,
    options: ReportOptions | None = None,
    *,
    by: ReportBy | None = None,
    trend: TrendUnit | None = None,
    tolerance: float = TOLERANCE,
    ratio_tolerance: float = MOST_RATIO,
    positive: str | None = None,
    ordered: bool = False,
    fit_rows: Answers | None = None,
    judge: str | None = None,
    reference: Answers | None = None,
) -> Report:
    """Report on a table from its sums; see `report_of_answers`.

    Raises:
        FileError: The sums lack the groups that `by`, `trend` or `positive` needs, or those of ordered classes.
        ConfigError: The positive class is not one of two classes, or ordered classes are not in ascending order.
    """
    options = replace(options or ReportOptions(), one_look=True)
    rows = table if isinstance(table, _RowsOfTable) else None
    for column in ("tag", "confidence_source"):
        if by == column and not table.has(column):
            raise FileError(f"{table.source} has no column {column}, which --by {column} needs")
    if by == "class" and not table.has_classes:
        raise FileError(f"{table.source} names no predicted classes, which --by class needs")
    if trend and not table.has("time"):
        raise FileError(f"{table.source} has no column time, which --trend needs")
    if ordered and rows is None:
        raise FileError(f"{table.source}: ordered classes need the rows; report on a file of them, without --engine")
    versions = table.by("version")
    of_positive = None if positive is None else table.positive(positive)
    notes = table.notes
    if reference is not None and rows is not None and rows.answers.labelled_N.all():
        notes = (*notes, f"Every answer has a label, so {reference.source} adds no class shares.")
    report = report_of(
        table.source,
        next(iter(versions)) if len(versions) == 1 else "",
        table.total,
        options,
        positive=of_positive,
        ordered=level_sums_of(rows.answers) if ordered and rows else None,
        tolerance=tolerance,
        ratio_tolerance=ratio_tolerance,
        versions=slices_of(versions, options) if len(versions) > 1 else (),
        classes=slices_of(table.by("class"), options) if by == "class" else None,
        tags=tags_of(table.by("tag"), options) if by == "tag" else None,
        confidence_sources=None if by != "confidence_source" else sources_of(table.by("confidence_source"), options),
        trend=trend_of(*table.periods(trend), options, tolerance) if trend else None,
        rounding=table.rounding(options.level),
        labelling=_labelling(rows, options),
        notes=notes,
        next_steps=NEXT_STEPS,
    )
    report.expected = _expected(report, table.total, of_positive, rows, options, fit_rows)
    if judge is not None:
        if rows is None:
            raise FileError(f"{table.source}: --judge needs the rows; report on a file of them, without --engine")
        report.judge = judge_figures(rows.answers, judge, options, positive)
    if rows is not None and rows.answers.sets is not None:
        report.sets = _set_coverage(rows.answers, rows.answers.sets, report, options)
    if reference is not None:
        report.class_shares = _class_shares(table, rows, reference, options, positive)
    if report.labelled and rows:
        sample, drawn = sample_evenly(rows.answers)
        report.may_act = may_act(acting_threshold(sample), drawn)
    if is_off(report):
        if trend is None and table.has("time"):
            trend = "auto"
        report.checks = first_checks(
            report.trend or (trend_of(*table.periods(trend), options) if trend else None),
            report.tags or tags_of(table.by("tag"), options),
            report.classes or slices_of(table.by("class"), options),
            positive=positive is not None,
        )
    return report


def _expected(
    report: Report,
    total: AnswerSums,
    positive: PositiveSums | None,
    rows: _RowsOfTable | None,
    options: ReportOptions,
    fit_rows: Answers | None,
) -> list[ExpectedDecisions]:
    """Return the expected decisions on the answers without a label: by p(positive), else by class."""
    if report.labelled == report.answers:
        return []
    if positive is not None:
        p_value = None if report.positive is None else report.positive.calibration_p_value
        evidence = LabelEvidence(positive.sums.labelled, p_value=1.0 if p_value is None else p_value)
        calibration, p_N = None, None
        if fit_rows is not None:
            calibration = CalibrationRows.of(np.clip(positive_rows_of(fit_rows, positive.name)[1], 0, 1))
        if rows is not None:
            p_N = positive_rows_of(rows.answers, positive.name)[1][~rows.answers.labelled_N]
        found = expected_of_positive(positive, options, evidence, calibration, p_N)
        return [] if found is None else [found]
    if rows is None or rows.answers.probabilities_NC is None or rows.answers.predicted is None:
        if fit_rows is not None:
            raise FileError(
                f"{fit_rows.source} is for expected precision and recall, which need a positive class (--positive)"
                " or rows with the probabilities of all classes; leave out --fit-rows"
            )
        return []
    answers = rows.answers
    assert answers.probabilities_NC is not None and answers.predicted is not None
    classes, of_classes = answers.predicted.values, None
    if fit_rows is not None:
        of_classes = _rows_of_classes(fit_rows, classes)
    evidence = LabelEvidence(
        total.labelled, p_value=1.0 if report.calibration_p_value is None else report.calibration_p_value
    )
    p_NC = summing_to_1(answers.probabilities_NC, answers.resolution)[~answers.labelled_N].astype(np.float64)
    by_class = expected_of_classes(p_NC, classes, options, evidence, of_classes)
    return [] if by_class is None else [by_class]


def _class_shares(
    table: ReportTable, rows: _RowsOfTable | None, reference: Answers, options: ReportOptions, positive: str | None
) -> ClassShares | None:
    """Return the class shares of the answers; None if every answer has a label.

    Raises:
        FileError: The answers or the reference do not have the probabilities of the same classes.
    """
    if rows is None:
        raise FileError(
            f"{table.source}: class shares need the rows; leave out --reference, or report on a file of answers"
        )
    classes, p_NC, label_N = _all_probabilities(rows.answers, positive)
    if len(classes) > MOST_CLASSES:
        raise FileError(
            f"{table.source} has {len(classes)} classes; class shares are for at most {MOST_CLASSES}: leave out"
            " --reference"
        )
    own, reference_RC, label_R = _all_probabilities(reference, positive)
    classes, own = _named_alike(classes, own, positive)
    if set(own) != set(classes):
        raise FileError(
            f"{reference.source} has the classes {', '.join(own[:5])}, {table.source} has {', '.join(classes[:5])};"
            " give reference rows with the probabilities of the same classes"
        )
    known_R = label_R >= 0
    if not known_R.any():
        raise FileError(f"{reference.source} has no labels; reference rows need the true class of each")
    if len(np.unique(np.nan_to_num(propensities_of(reference)[known_R], nan=-1.0))) > 1:
        raise FileError(
            f"{reference.source}: its labels had different probabilities (propensity), so the scores of a class are not"
            " those of all rows; give reference rows that are a random sample"
        )
    if (label_N >= 0).all():
        return None
    order = [own.index(name) for name in classes]
    labels_R = np.argsort(order)[label_R[known_R]]
    return shares_of_rows(
        classes,
        p_NC,
        (p_NC[label_N >= 0], label_N[label_N >= 0]),
        (reference_RC[known_R][:, order], labels_R),
        confidence=options.level,
        positive=None if positive is None else classes.index(positive),
    )


def _named_alike(
    classes: tuple[str, ...], own: tuple[str, ...], positive: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the class beside a positive one the same name in two tables, if one of them does not name it.

    A table with the one column of p(positive) knows the other class only by its labels.
    """
    unnamed = f"not {positive}"
    names = {*classes, *own} - {positive, unnamed}
    if positive is None or len(classes) != 2 or len(own) != 2 or len(names) != 1:
        return classes, own
    (name,) = names
    one, other = (tuple(name if label == unnamed else label for label in labels) for labels in (classes, own))
    return one, other


def _all_probabilities(
    answers: Answers, positive: str | None
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Return the classes, the probabilities of all of them, and the labels, -1 without one.

    Raises:
        FileError: The table does not have the probabilities.
    """
    if answers.probabilities_NC is not None and answers.predicted is not None and answers.label_N is not None:
        p_NC = summing_to_1(answers.probabilities_NC, answers.resolution).astype(np.float64)
        return answers.predicted.values, p_NC, answers.label_N
    if positive is None:
        raise FileError(
            f"{answers.source} does not have the probabilities of all classes, which class shares need; give them, or"
            " name the positive class of two with --positive"
        )
    _, p_N, is_positive_N = positive_rows_of(answers, positive)
    labels_N = np.where(answers.labelled_N, is_positive_N, -1).astype(np.intp)
    return (f"not {positive}", positive), np.stack([1 - p_N, p_N], axis=1), labels_N


def _rows_of_classes(fit_rows: Answers, classes: tuple[str, ...]) -> list[CalibrationRows]:
    """Return the information of the fitted rows about each class.

    Raises:
        FileError: The rows do not have the probabilities of these classes.
    """
    own = None if fit_rows.predicted is None else fit_rows.predicted.values
    if fit_rows.probabilities_NC is None or own is None or set(own) != set(classes):
        raise FileError(
            f"{fit_rows.source} does not have the probabilities of the classes {', '.join(classes[:5])}; give the"
            " calibrated probabilities of the rows that fitted the calibrator, in the same columns"
        )
    p_NC = np.clip(fit_rows.probabilities_NC, 0, 1)
    return [CalibrationRows.of(p_NC[:, own.index(name)]) for name in classes]


def _set_coverage(answers: Answers, sets: SetRows, report: Report, options: ReportOptions) -> SetCoverage:
    """Return the coverage of the table's conformal sets."""
    tags: list[str | None] = [None] * len(sets.label_L)
    known_N, choice = answers.labelled_N, report.labelling.choice
    if answers.groups.tags is not None:
        tags = [tag for tag, known in zip(answers.groups.tags.as_list(), known_N.tolist(), strict=True) if known]
    propensity_L = propensities_of(answers)[known_N]
    is_chosen = choice is not None and choice.warning
    return coverage_of(sets, propensity_L, tags, is_chosen=is_chosen, confidence=options.level)


def _labelling(rows: _RowsOfTable | None, options: ReportOptions) -> Labelling | None:
    """Check the labels of a table with propensities. None for other tables, which are checked by their sums."""
    if rows is None or rows.answers.groups.propensities is None:
        return None
    answers, known_N = rows.answers, rows.answers.labelled_N
    propensity_L = propensities_of(answers)[known_N]
    no_delay_L = np.zeros(len(propensity_L), np.int64)
    labelled = LabelledRows(answers.confidence_N[known_N], answers.correct_N[known_N], propensity_L, no_delay_L)
    return labelling_of(rows.total, options, labelled)


def table_of_answers(answers: Answers) -> ReportTable:
    """Return answers in memory as a table, whose sums are made when the report needs them."""
    return _RowsOfTable(answers)


@dataclass(frozen=True)
class _RowsOfTable:
    """Sums of answers that are in memory, made when the report needs them."""

    answers: Answers

    @property
    def source(self) -> str:
        return self.answers.source

    @property
    def notes(self) -> tuple[str, ...]:
        return self.answers.notes

    @property
    def total(self) -> AnswerSums:
        return sums_of(self.answers)

    @property
    def has_classes(self) -> bool:
        return self.answers.predicted is not None

    def has(self, column: str) -> bool:
        groups = self.answers.groups
        columns = {"tag": groups.tags, "version": groups.versions, "confidence_source": groups.confidence_sources}
        return groups.time_ms_N is not None if column == "time" else columns[column] is not None

    def by(self, column: str) -> dict[str, AnswerSums]:
        groups = self.answers.groups
        columns = {
            "class": ("classes", self.answers.predicted),
            "tag": ("tags", groups.tags),
            "version": ("versions", groups.versions),
            "confidence_source": ("confidence_sources", groups.confidence_sources),
        }
        return _sums_by(self.answers, *columns[column])

    def periods(self, unit: TrendUnit) -> tuple[Unit, list[tuple[int, AnswerSums]]]:
        return sums_by_period(self.answers, unit)

    def positive(self, name: str) -> PositiveSums:
        return positive_sums_of(self.answers, name)

    def rounding(self, level: float) -> RoundedFigures | None:
        return _rounding(self.answers, level)


def _rounding(answers: Answers, level: float) -> RoundedFigures | None:
    """Describe the resolution of a table with all probabilities; None for other tables."""
    if answers.probabilities_NC is None or answers.label_N is None:
        return None
    return rounded_figures(*labelled_rows(answers), answers.resolution, level)


def _sums_by(answers: Answers, name: str, column: Texts | None) -> dict[str, AnswerSums]:
    """Return the sums of each group; empty if the table does not have the column."""
    if column is None:
        return {}
    if len(column.values) > MOST_GROUPS:
        problem = f"{answers.source} has {len(column.values):,} different {name}; at most {MOST_GROUPS:,} are compared"
        raise FileError(f"{problem}: give groups that many answers share, or remove the column")
    return sums_by(answers, column)


def sums_of(answers: Answers) -> AnswerSums:
    """Return the sums of all answers, with NLL and Brier score if all probabilities are known."""
    answers_C = np.bincount(cell_of(answers.confidence_N), minlength=CELLS)
    labelled_N = answers.labelled_N
    if not labelled_N.any():
        return AnswerSums(answers_C, CalibrationSums.zero())
    if answers.probabilities_NC is None or answers.label_N is None:
        rows = answers.confidence_N[labelled_N], answers.correct_N[labelled_N]
        return AnswerSums(answers_C, CalibrationSums.from_top(*rows))
    return AnswerSums(
        answers_C, CalibrationSums.from_probabilities(*labelled_rows(answers), resolution=answers.resolution)
    )


def positive_sums_of(answers: Answers, name: str) -> PositiveSums:
    """Return the sums of all answers by the probability of one class.

    The probability comes from the class's column, or from that of the predicted class.

    Raises:
        FileError: The classes of the answers have no names.
        ConfigError: There are not two classes, or none has this name.
    """
    positive, p_N, is_positive_N = positive_rows_of(answers, name)
    known_N = answers.labelled_N
    answers_C = np.bincount(cell_of(p_N), minlength=CELLS)
    labelled = (
        positive.sums_of(p_N[known_N], is_positive_N[known_N], answers.resolution)
        if known_N.any()
        else CalibrationSums.zero()
    )
    return PositiveSums(name, AnswerSums(answers_C, labelled))


def level_sums_of(answers: Answers) -> LevelSums:
    """Return the sums of the labelled answers by level, in the order of the classes.

    Raises:
        FileError: The table does not have the probabilities of all classes.
        ConfigError: The classes are numbers that do not ascend, or there is one class.
    """
    if answers.probabilities_NC is None or answers.predicted is None:
        raise FileError(
            f"{answers.source} has no probabilities of all classes, which ordered classes need: give one column of"
            " probabilities for each class"
        )
    names = check_level_names(answers.predicted.values)
    sums = OrderedSums.zero(len(names))
    if answers.labelled_N.any():
        sums = OrderedSums.from_probabilities(*labelled_rows(answers), resolution=answers.resolution)
    return LevelSums(names, sums)


def labelled_rows(answers: Answers) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.intp]]:
    """Return probabilities and labels of the labelled answers of a table with all probabilities."""
    assert answers.probabilities_NC is not None and answers.label_N is not None
    if answers.labelled_N.all():
        return answers.probabilities_NC, answers.label_N
    return answers.probabilities_NC[answers.labelled_N], answers.label_N[answers.labelled_N]


def sums_by(answers: Answers, names: Texts) -> dict[str, AnswerSums]:
    """Return the sums of the answers by name, in the order of the names, without NLL and Brier score."""
    groups = _group_sums(answers, names.code_N, len(names.values))
    return {name: sums for name, sums in zip(names.values, groups, strict=True) if sums.answers}


def sums_by_period(answers: Answers, unit: TrendUnit) -> tuple[Unit, list[tuple[int, AnswerSums]]]:
    """Return the sums of each period with answers, with its start in Unix milliseconds, and the unit of the periods.

    With `auto` the unit is the finest one that needs at most 120 points, else the month. Minutes are used only within 3
    hours.
    """
    assert answers.groups.time_ms_N is not None
    time_N = answers.groups.time_ms_N.astype("datetime64[ms]")
    is_short = np.ptp(answers.groups.time_ms_N) < MOST_MINUTES * MINUTE_MS
    units = UNITS if is_short else UNITS[1:]
    for chosen in units if unit == "auto" else (unit,):
        start_P, period_N = np.unique(time_N.astype(f"datetime64[{_CODES[chosen]}]"), return_inverse=True)
        most = MOST_MINUTES if chosen == "minute" else MAX_POINTS
        if unit != "auto" or chosen == units[-1] or len(start_P) <= most:
            break
    starts_ms = start_P.astype("datetime64[ms]").astype(np.int64).tolist()
    return chosen, list(zip(starts_ms, _group_sums(answers, period_N, len(start_P)), strict=True))


def _group_sums(answers: Answers, group_N: npt.NDArray[np.intp], groups: int) -> list[AnswerSums]:
    """Return the sums of each group of answers."""
    order_N = group_N.argsort(kind="stable")
    ends = np.bincount(group_N, minlength=groups).cumsum()[:-1]
    parts = []
    for rows in np.split(order_N, ends):
        known = rows[answers.labelled_N[rows]]
        labelled = CalibrationSums.from_top(answers.confidence_N[known], answers.correct_N[known])
        parts.append(AnswerSums(np.bincount(cell_of(answers.confidence_N[rows]), minlength=CELLS), labelled))
    return parts
