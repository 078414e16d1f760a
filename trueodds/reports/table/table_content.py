"""Content of a table as answers: confidence, class, whether it was right, and groups."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.reports.resolution import read_as_words
from trueodds.reports.table.classes import (
    NO_LABEL,
    NO_LABEL_CURE,
    check_alike,
    check_order,
    class_indices,
    label_values,
    order_doubt,
    order_note,
)
from trueodds.reports.table.set_rows import SetRows
from trueodds.sums.inputs import Array, check_top
from trueodds.sums.positive import CLASSES, PositiveClass
from trueodds.sums.rounding import EXACT, Resolution, check_steps, checked_rows
from trueodds.texts import plural, short, without_point


@dataclass(frozen=True, eq=False, kw_only=True)
class Groups:
    """Groups of the answers, one entry for each answer. None if the table does not have the column."""

    tags: Texts | None = None
    versions: Texts | None = None
    time_ms_N: npt.NDArray[np.int64] | None = None
    note: str = ""
    """Sentence on how the times were read."""
    questions: Texts | None = None
    propensities: Texts | None = None
    """Probability of each answer to get a label."""
    confidence_sources: Texts | None = None
    audits: Texts | None = None
    """"true" or "false" for answers that act alone: whether the audit asked for their labels."""
    judge: Texts | None = None
    """Labels of a judge. They are not in `correct_N`, `labelled_N` and `label_N`, which people's labels fill."""
    human: Texts | None = None
    """People's labels as they were given, beside those of a judge."""
    first_label: int | None = None
    """Number of the first class in labels that are numbers, if it was given."""
    classes: tuple[str, ...] = ()
    """Names of all classes, if they were given."""


@dataclass(frozen=True, eq=False)
class Answers:
    """N answers of a table, in its order."""

    source: str
    """Name of the table's file."""
    confidence_N: Array
    predicted: Texts | None
    """Predicted class of each answer. None if the table does not name it."""
    labelled_N: npt.NDArray[np.bool_]
    correct_N: npt.NDArray[np.bool_]
    """Whether each answer was right. False without a label."""
    probabilities_NC: npt.NDArray[np.floating] | None = None
    label_N: npt.NDArray[np.intp] | None = None
    """Column of the true class, -1 without a label. Set together with the probabilities."""
    label_names: tuple[str, ...] = ()
    """The different labels, if there are no probabilities of all classes."""
    groups: Groups = field(default_factory=Groups)
    notes: tuple[str, ...] = ()
    """Sentences on how the table was read, where the file did not say it."""
    resolution: Resolution = EXACT
    """Resolution of the probabilities, of the whole table."""
    sets: SetRows | None = None
    """Conformal sets of the labelled answers, if they were read."""

    def __len__(self) -> int:
        return len(self.confidence_N)

    @property
    def read_as(self) -> str:
        """Sentences on the resolution; empty without a step."""
        return read_as_words(self.resolution)


def of_probabilities(
    source: str,
    probabilities_NC: npt.NDArray[np.floating],
    labels: Texts,
    classes: tuple[str, ...],
    *,
    ordered: bool,
    predicted: Texts | None = None,
    groups: Groups | None = None,
    note: str = "",
    first_label: int | None = None,
    resolution: Resolution | None = None,
) -> Answers:
    """Build answers from the probabilities of all classes.

    Each predicts the class of the highest one, or the first of equal ones.

    Args:
        source: Name of the table's file.
        probabilities_NC: Probabilities.
        labels: Names of `classes`, or their numbers, as `class_indices` reads them.
        classes: Names of the columns.
        ordered: The order of the classes was given. Otherwise numbers that fit another order better are refused.
        predicted: Predicted classes, which must agree with the probabilities.
        groups: Groups of the answers.
        note: Sentence on how the probabilities were read.
        first_label: Number of the first class, 0 or 1.
        resolution: Resolution of the probabilities. None: as the rows show it.

    Raises:
        ValueError: Probabilities are outside [0, 1] or between the steps, rows do not sum to 1, or lengths differ.
        FileError: A label is not a class, a predicted class does not have the highest probability, or the labels number
            the classes in another order.
    """
    p_NC, read_as = checked_rows(probabilities_NC, resolution)
    if len(classes) != p_NC.shape[1]:
        raise FileError(
            f"{source}: {len(classes)} names of classes for {p_NC.shape[1]} columns; give one for each column"
        )
    label_N, scheme = class_indices(source, "label", labels, classes, first=first_label, beside=predicted)
    _check_length(source, "labels", len(label_N), len(p_NC))
    top_N = p_NC.argmax(axis=1)
    if predicted is not None:
        _check_length(source, "predicted", len(predicted), len(p_NC))
        own_N = class_indices(source, "predicted class", predicted, classes, first=first_label, beside=labels).index_N
        if (own_N != top_N).any():
            row = int((own_N != top_N).argmax())
            problem = f"{source}: answer {row + 1} predicts {predicted.as_list()[row]!r}, and its highest probability"
            cure = "leave out predicted, or give confidence, predicted and label in place of the probabilities"
            raise FileError(f"{problem} is that of {classes[top_N[row]]!r}; {cure}")
    if scheme != "names" and not ordered:
        check_order(source, top_N, label_N, classes)
    how = "" if scheme == "numbers" and ordered else order_note(scheme, classes, first_label or 0)
    doubt = order_doubt(top_N, label_N, classes) if ordered else ""
    return Answers(
        source=source,
        confidence_N=read_as.confidence(
            np.minimum(np.take_along_axis(p_NC, top_N[:, None], 1)[:, 0], 1).astype(np.float64)
        ),
        predicted=Texts(classes, top_N),
        labelled_N=label_N >= 0,
        correct_N=label_N == top_N,
        probabilities_NC=p_NC,
        label_N=label_N,
        groups=groups or Groups(),
        notes=tuple(filter(None, (note, how, doubt, groups.note if groups else ""))),
        resolution=read_as,
    )


def of_confidence(
    source: str,
    confidence: npt.NDArray[np.generic],
    labelled_N: npt.NDArray[np.bool_],
    correct_N: npt.NDArray[np.bool_],
    predicted: Texts | None,
    groups: Groups | None = None,
    *,
    label_names: tuple[str, ...] = (),
    resolution: Resolution | None = None,
) -> Answers:
    """Build answers from the probability of the predicted class alone.

    Raises:
        ValueError: A confidence is outside [0, 1] or between the steps of the resolution, or lengths differ.
    """
    confidence_N, right_N = check_top(confidence, correct_N)
    check_steps(confidence_N[:, None], resolution or EXACT, "confidence")
    _check_length(source, "labels", len(labelled_N), len(confidence_N))
    right_N &= labelled_N
    low = int((confidence_N < 0.5).sum()) if len(label_names) == CLASSES else 0
    note = (
        f"{low:,} of {plural(len(confidence_N), 'answer')} of two classes have a confidence below one half. confidence"
        " is the probability of the class in predicted: if it is that of one class in every answer, give --classes"
        " confidence and --positive CLASS."
    )
    return Answers(
        source,
        (resolution or EXACT).confidence(confidence_N),
        predicted,
        labelled_N,
        right_N,
        label_names=label_names,
        groups=groups or Groups(),
        notes=tuple(filter(None, (note if low else "", groups.note if groups else ""))),
        resolution=resolution or EXACT,
    )


def correctness(
    source: str, correct: Texts, column: str = "correct"
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Read a column of 0 and 1, or true and false: which answers have a label, and which of them were right.

    Raises:
        FileError: A cell holds something else and is not empty.
    """
    states = {"1": 1, "true": 1, "0": 0, "false": 0} | dict.fromkeys(NO_LABEL, _NONE)
    for value in correct.values:
        if without_point(value.lower()) not in states:
            problem = f"{source}: {column} holds {short(value)}; allowed are 0, 1, true, false"
            raise FileError(f"{problem}; {NO_LABEL_CURE}")
    state_N = np.array([states[without_point(value.lower())] for value in correct.values], np.intp)[correct.code_N]
    return state_N != _NONE, state_N == 1


def agreement(
    source: str,
    predicted: Texts,
    labels: Texts,
    classes: tuple[str, ...] = (),
    first: int | None = None,
) -> tuple[Texts, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the predicted classes, which answers have a label, and which labels equal the predicted class.

    Args:
        source: Name of the table's file.
        predicted: Predicted classes.
        labels: True classes.
        classes: All classes, if they were given. Otherwise both columns must spell them alike.
        first: Number of the first class, 0 or 1.

    Raises:
        FileError: An answer has no predicted class, lengths differ, a class is unknown, or a label may be a class,
            another spelling of one, or no label.
    """
    _check_length(source, "predicted", len(predicted), len(labels))
    if not predicted.is_known_N.all():
        row = int(predicted.is_known_N.argmin()) + 1
        raise FileError(f"{source}: answer {row} has no predicted class; every answer needs one")
    if not classes:
        classes = tuple(dict.fromkeys(map(without_point, predicted.values)))
        check_alike(source, classes, label_values(labels, classes))
        classes += tuple(name for name in label_values(labels, classes) if name not in classes)
    predicted_N = class_indices(source, "predicted class", predicted, classes, first=first, beside=labels).index_N
    label_N = class_indices(source, "label", labels, classes, first=first, beside=predicted).index_N
    return Texts(classes, predicted_N), label_N >= 0, label_N == predicted_N


_NONE = -1


def _check_length(source: str, name: str, length: int, rows: int) -> None:
    if length != rows:
        raise FileError(f"{source}: {name} has {length:,} rows for {rows:,} answers; give one row for each answer")


def propensities_of(answers: Answers) -> Array:
    """Parse the column `propensity`. NaN for an empty cell, and for all rows without the column.

    Raises:
        FileError: A propensity is outside (0, 1].
    """
    cells = answers.groups.propensities
    if cells is None:
        return np.full(len(answers), np.nan)
    read = []
    for value in cells.values:
        try:
            number = float(value) if value else np.nan
        except ValueError:
            number = -1.0
        if number <= 0 or number > 1:
            raise FileError(
                f"{answers.source}: propensity holds {short(value)}; allowed is a probability in (0, 1], or an empty"
                " cell. If the column means something else, rename it"
            )
        read.append(number)
    return np.array(read, np.float64)[cells.code_N]


def positive_rows_of(answers: Answers, name: str) -> tuple[PositiveClass, Array, npt.NDArray[np.bool_]]:
    """Return the positive class, its probability in each answer, and whether it is the true class of a labelled answer.

    Raises:
        FileError, ConfigError: The classes have no names, there are not two, or none has this name.
    """
    if answers.predicted is None:
        raise FileError(f"{answers.source} names no predicted classes, which a positive class needs")
    classes = answers.predicted.values
    if answers.probabilities_NC is None or answers.label_N is None:
        classes = tuple(dict.fromkeys((*classes, *answers.label_names)))
        if name in classes or len(classes) < CLASSES:  # possibly no answer and no label names it
            classes = (*(other for other in classes if other != name), name)
        positive = PositiveClass.of(name, classes)
        is_top_N = np.array([value == name for value in answers.predicted.values])[answers.predicted.code_N]
        p_N = positive.probability_of_top(answers.confidence_N, is_top_N)
        return positive, p_N, is_top_N == answers.correct_N
    positive = PositiveClass.of(name, classes)
    p_N = np.clip(positive.probability(answers.probabilities_NC), 0, 1).astype(np.float64)
    return positive, answers.resolution.confidence(p_N), answers.label_N == positive.index
