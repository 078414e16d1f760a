"""Figures of answers with a judge's labels beside human ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.metrics import JudgeRate, PoweredMean, judge_errors, powered_gap, powered_mean
from trueodds.metrics.labelling.powered import FEWEST, FEWEST_EFFECTIVE, relative_weights
from trueodds.metrics.labelling.weighted_share import weighted_share
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas.judge import Confusion, JudgeBin, JudgeClass, JudgeFigures, PoweredFigure
from trueodds.reports.table.classes import check_alike, class_indices, label_values
from trueodds.reports.table.table_content import Answers, correctness, positive_rows_of, propensities_of
from trueodds.reports.words import percent, signed_points, span
from trueodds.sums.bins import CELLS, cell_of
from trueodds.sums.inputs import Array
from trueodds.texts import plural

MOST_CONFUSIONS = 20
MOST_CLASSES = 1_000
"""Largest number of classes whose error rates are computed."""
BINS = 15
"""Number of bins of equal width, if the report's number of bins does not divide the cells."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedRows:
    """Human and judge's labels of all answers, as numbers with NaN for none."""

    source: str
    """Name of the table, or of the model and its version."""
    confidence_N: Array
    labels: int
    """Number of human labels, also of those without a propensity."""
    human_N: Array
    """1 if the answer is right by its human label, 0 if it is wrong."""
    judge_N: Array
    propensity_N: Array | None
    classes: tuple[str, ...] = ()
    human_class_N: npt.NDArray[np.intp] | None = None
    judge_class_N: npt.NDArray[np.intp] | None = None
    is_table: bool = True
    """Whether the rows are those of a table, whose columns a user can change."""


def judge_figures(answers: Answers, column: str, options: ReportOptions, positive: str | None = None) -> JudgeFigures:
    """Compute the estimates from human and judge's labels of a table, and the judge's error rates.

    Args:
        answers: Answers of a table, read with the judge's column.
        column: Name of this column.
        options: Bins and confidence level.
        positive: The positive class, for its prevalence.

    Raises:
        FileError: The judge gives a label that is no class, or labels only answers with or without a human label, or no
            answer.
    """
    rows = _rows_of(answers, column)
    if positive is None or rows.judge_class_N is None:
        return figures_of_rows(rows, column, options)
    return figures_of_rows(rows, column, options, positive, positive_rows_of(answers, positive)[2])


def figures_of_rows(
    rows: JudgedRows,
    column: str,
    options: ReportOptions,
    positive: str | None = None,
    is_positive_N: npt.NDArray[np.bool_] | None = None,
) -> JudgeFigures:
    """Compute the figures of `judge_figures` from both labels of every answer.

    Args:
        rows: The labels.
        column: Name of the judge's column.
        options: Bins and confidence level.
        positive: The positive class, for its prevalence.
        is_positive_N: Whether the human label of each answer is the positive class.

    Raises:
        FileError: The judge labels only answers with or without a human label, or no answer.
    """
    known_N, judged_N = np.isfinite(rows.human_N), np.isfinite(rows.judge_N)
    if not judged_N.any():
        raise FileError(f"{rows.source}: the column {column} holds no label of a judge; name another with --judge")
    figures = _errors_of(rows, column, known_N & judged_N, options.level)
    figures.labels = int(known_N.sum())
    left_out = _left_out(rows.labels - figures.labels, is_table=rows.is_table)
    if refusal := _refusal(rows, known_N):
        figures.reading = " ".join(filter(None, (refusal, left_out, _agreement_words(figures))))
        return figures
    level, propensity_N = options.level, rows.propensity_N
    try:
        accuracy = powered_mean(rows.human_N, rows.judge_N, propensity_N=propensity_N, level=level)
        gap = powered_gap(rows.confidence_N, rows.human_N, rows.judge_N, propensity_N=propensity_N, level=level)
    except ValueError as error:
        raise FileError(f"{rows.source}, column {column}: {error}") from None
    figures.accuracy, figures.signed_gap = _figure(accuracy), _figure(gap)
    figures.effective_n = accuracy.effective_n
    figures.unlike_p_value, figures.warning = accuracy.unlike_p_value, accuracy.unlike
    figures.bins = _bins(rows.confidence_N, rows, options)
    if positive is not None and is_positive_N is not None and rows.judge_class_N is not None:
        place = rows.classes.index(positive) if positive in rows.classes else len(rows.classes)
        judge_N = np.where(judged_N, rows.judge_class_N == place, np.nan)
        human_N = np.where(known_N, is_positive_N, np.nan)
        share = powered_mean(human_N, judge_N, propensity_N=propensity_N, level=level)
        figures.prevalence, figures.label = _figure(share), positive
    figures.reading = f"{_reading(figures)} {left_out}".strip()
    return figures


def _rows_of(answers: Answers, column: str) -> JudgedRows:
    """Read both labels of every answer.

    Raises:
        FileError: The judge gives a label that is no class.
    """
    judge, human, first = answers.groups.judge, answers.groups.human, answers.groups.first_label
    assert judge is not None
    propensity_N = None if answers.groups.propensities is None else propensities_of(answers)
    known_N = answers.labelled_N if propensity_N is None else answers.labelled_N & np.isfinite(propensity_N)
    human_N = np.where(known_N, answers.correct_N.astype(np.float64), np.nan)
    if answers.predicted is None or human is None:
        judged_N, right_N = correctness(answers.source, judge, column)
        return JudgedRows(
            source=answers.source,
            confidence_N=answers.confidence_N,
            labels=int(answers.labelled_N.sum()),
            human_N=human_N,
            judge_N=np.where(judged_N, right_N.astype(np.float64), np.nan),
            propensity_N=propensity_N,
        )
    classes = answers.predicted.values
    if answers.probabilities_NC is None and classes != answers.groups.classes:
        classes = _all_classes(answers.source, classes, (human, judge))
    kind = f"label (column {column})"
    judge_N = class_indices(answers.source, kind, judge, classes, first=first, beside=human).index_N
    if answers.label_N is not None:
        human_class_N = answers.label_N
    else:
        human_class_N = class_indices(
            answers.source, "label", human, classes, first=first, beside=answers.predicted
        ).index_N
    agrees_N = (judge_N == answers.predicted.code_N).astype(np.float64)
    judge_right_N = np.where(judge_N >= 0, agrees_N, np.nan)
    human_class_N = np.where(known_N, human_class_N, -1)
    disagrees_N = (human_class_N >= 0) & ((human_class_N == answers.predicted.code_N) != answers.correct_N)
    if disagrees_N.any():
        row = int(disagrees_N.argmax())
        raise FileError(
            f"{answers.source}: answer {row + 1} has correct {int(answers.correct_N[row])}, the label"
            f" {classes[human_class_N[row]]!r} and predicted {classes[answers.predicted.code_N[row]]!r}; leave out the"
            " column correct or the labels"
        )
    return JudgedRows(
        source=answers.source,
        confidence_N=answers.confidence_N,
        labels=int(answers.labelled_N.sum()),
        human_N=human_N,
        judge_N=judge_right_N,
        propensity_N=propensity_N,
        classes=classes,
        human_class_N=human_class_N,
        judge_class_N=judge_N,
    )


def _all_classes(source: str, classes: tuple[str, ...], columns: tuple[Texts, ...]) -> tuple[str, ...]:
    """Add the labels that no answer predicts to the predicted classes."""
    for column in columns:
        values = label_values(column, classes)
        check_alike(source, classes, values)
        classes += tuple(value for value in values if value not in classes)
    return classes


def _refusal(rows: JudgedRows, known_N: npt.NDArray[np.bool_]) -> str:
    """Say why there are no estimates; "" if there are enough human labels."""
    labels = int(known_N.sum())
    if labels < FEWEST:
        return f"Estimates need {FEWEST} human labels; there are {labels}."
    if rows.propensity_N is None:
        return ""
    weight_L = relative_weights(rows.propensity_N[known_N])
    effective = float(weight_L.sum() ** 2 / (weight_L @ weight_L))
    if effective >= FEWEST_EFFECTIVE:
        return ""
    return (
        f"The {labels} human labels are as informative as {effective:.1f} plain ones, because their propensities"
        f" differ; estimates need {FEWEST_EFFECTIVE:g}."
    )


def _left_out(count: int, *, is_table: bool) -> str:
    """Say how many human labels have no propensity; "" if none."""
    if not count:
        return ""
    words = (
        f"{plural(count, 'human label has', 'human labels have')} no propensity, so these figures leave"
        f" {'it' if count == 1 else 'them'} out."
    )
    cure = " Fill in the column propensity, or remove it if the human labels are a plain random sample."
    return words + cure * is_table


def _figure(mean: PoweredMean) -> PoweredFigure:
    return PoweredFigure(**{name: getattr(mean, name) for name in PoweredFigure.model_fields})


def _bins(confidence_N: Array, rows: JudgedRows, options: ReportOptions) -> list[JudgeBin]:
    """Estimate the gap of each bin with answers."""
    bins = options.bins if CELLS % options.bins == 0 else BINS
    bin_N = cell_of(confidence_N) // (CELLS // bins)
    known_N, parts = np.isfinite(rows.human_N), []
    for k in np.unique(bin_N).tolist():
        of_N = bin_N == k
        propensity_N = None if rows.propensity_N is None else rows.propensity_N[of_N]
        columns = confidence_N[of_N], rows.human_N[of_N], rows.judge_N[of_N]
        try:
            gap = powered_gap(*columns, propensity_N=propensity_N, level=options.level, fewest=int(FEWEST_EFFECTIVE))
        except ValueError:  # too few labels in the bin
            gap = None
        parts.append(
            JudgeBin(
                lo=k / bins,
                hi=(k + 1) / bins,
                answers=int(of_N.sum()),
                labels=int((of_N & known_N).sum()),
                mean_confidence=float(columns[0].mean()),
                gap=None if gap is None else _figure(gap),
            )
        )
    return parts


def _errors_of(rows: JudgedRows, column: str, both_N: npt.NDArray[np.bool_], level: float) -> JudgeFigures:
    """Compute the judge's error rates on the answers that have both labels."""
    count = int(np.isfinite(rows.judge_N).sum())
    figures = JudgeFigures(column=column, answers=len(both_N), judge_labels=count, labels=0, reading="")
    if not both_N.any():
        return figures
    propensity_L = np.ones(int(both_N.sum())) if rows.propensity_N is None else rows.propensity_N[both_N]
    smallest = float(propensity_L.min() if rows.propensity_N is None else np.nanmin(rows.propensity_N))
    human_class_N = rows.human_class_N
    if human_class_N is not None and (human_class_N[both_N] < 0).any():  # the column correct says more than the labels
        human_class_N = None
    if human_class_N is None or rows.judge_class_N is None or len(rows.classes) > MOST_CLASSES:
        agrees_L = rows.human_N[both_N] == rows.judge_N[both_N]
        agreement = JudgeRate(*weighted_share(agrees_L, smallest / propensity_L, level))
    else:
        human_L, judge_L = human_class_N[both_N], rows.judge_class_N[both_N]
        errors = judge_errors(
            human_L, judge_L, rows.classes, propensity_L=propensity_L, smallest_propensity=smallest, level=level
        )
        agreement, counts_CC = errors.agreement, errors.confusion_CC
        figures.classes = [
            JudgeClass(
                name=name,
                labels=int(counts_CC[k].sum()),
                judge_labels=int(counts_CC[:, k].sum()),
                sensitivity=found.value,
                sensitivity_lower=found.lower,
                sensitivity_upper=found.upper,
                specificity=spared.value,
                specificity_lower=spared.lower,
                specificity_upper=spared.upper,
            )
            for k, (name, found, spared) in enumerate(
                zip(rows.classes, errors.sensitivity_C, errors.specificity_C, strict=True)
            )
            if counts_CC[k].any() or counts_CC[:, k].any()
        ]
        pairs = [(int(counts_CC[a, b]), a, b) for a, b in zip(*np.nonzero(counts_CC), strict=True) if a != b]
        pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
        figures.confusions = [
            Confusion(human=rows.classes[a], judge=rows.classes[b], answers=n) for n, a, b in pairs[:MOST_CONFUSIONS]
        ]
    figures.agreement, figures.agreement_lower, figures.agreement_upper = (
        agreement.value,
        agreement.lower,
        agreement.upper,
    )
    return figures


def _reading(figures: JudgeFigures) -> str:
    """Describe the estimates in sentences."""
    accuracy, gap = figures.accuracy, figures.signed_gap
    assert accuracy is not None and gap is not None
    words = [
        f"From {figures.labels:,} human labels and the labels of the judge in the column {figures.column},"
        f" {percent(accuracy.value)} of {plural(figures.answers, 'answer')} are right"
        f" ({span(accuracy.lower, accuracy.upper, 'percent')}). From the human labels alone it is"
        f" {percent(accuracy.human_value)} ({span(accuracy.human_lower, accuracy.human_upper, 'percent')}).",
        f"Accuracy minus mean confidence is {signed_points(gap.value)} ({span(gap.lower, gap.upper, 'signed')}).",
        f"For the accuracy, the judge is worth {accuracy.saving:.2f} times as many human labels (squared correlation"
        f" {accuracy.squared_correlation:.2f}).",
        _agreement_words(figures),
    ]
    if figures.judge_labels < figures.answers:
        missing = plural(figures.answers - figures.judge_labels, "answer has", "answers have")
        words.append(f"{missing} no label of the judge.")
    if figures.warning:
        words.append(
            "The judge's labels of the human-labelled answers differ from those of all answers (p < 0.001). So the"
            " human labels are no random sample with these propensities, and all these estimates may be biased."
        )
    return " ".join(words)


def _agreement_words(figures: JudgeFigures) -> str:
    """Describe how often the judge agrees with people; "" if nothing has both labels."""
    if figures.agreement is None:
        return ""
    limits = span(figures.agreement_lower, figures.agreement_upper, "percent")
    return f"The judge agrees with {percent(figures.agreement)} of the human labels ({limits})."
