"""Reader of tables of answers: arrays in .npz or .npy, columns in CSV or Parquet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.conformal import SetRule
from trueodds.errors import UserError, nearest
from trueodds.files import FileError, read_npz
from trueodds.inputs import columns
from trueodds.inputs.columns import Texts
from trueodds.inputs.table import is_number
from trueodds.inputs.times import TEN_YEARS
from trueodds.inputs.times import note as time_note
from trueodds.processes.choices import LABEL, TABLES
from trueodds.reports.table.classes import bare_names, numeric_names, one_column, unlabelled_note
from trueodds.reports.table.human_sample import human_labels_of
from trueodds.reports.table.matching import IDS, repeats_note, repeats_words
from trueodds.reports.table.set_rows import sets_of_array, sets_of_cells
from trueodds.reports.table.table_content import (
    Answers,
    Groups,
    agreement,
    correctness,
    of_confidence,
    of_probabilities,
)
from trueodds.sums.inputs import (
    BELOW_ZERO,
    MUST_SUM,
    PERCENT_CURE,
    ROW_SUM_TOLERANCE,
    TELLING_ROWS,
    Array,
    are_percentages,
    as_numbers,
    both_classes,
    check_logits,
    may_be_percentages,
    softmax,
    sums_to_one,
    without_noise,
)
from trueodds.sums.rounding import Resolution
from trueodds.sums.steps import inferred_step
from trueodds.texts import alike, column_quotes, plural, quotes

NOT_CLASSES = (
    "id",
    "question",
    "tag",
    "time",
    "version",
    "confidence",
    "predicted",
    "correct",
    "confidence_source",
    "propensity",
    "set",
)
"""Columns of a table that have a fixed meaning."""
_LABELS = ("labels", "y", "y_true", "target", "truth", "true_label", "true_class", "ground_truth", "gold", "actual")
"""Usual names of a column of labels, in lower case."""
_FRACTION = re.compile(r"[+-]?\d*\.\d*[1-9]\d*(e[+-]?\d+)?", re.IGNORECASE)
"""Pattern of a number that cannot be a class's name."""
FIRST = 2
"""Row number of the first answer; the header is row 1."""
_COLUMNS = {
    "question": "questions",
    "tag": "tags",
    "version": "versions",
    "time": "times",
    "confidence_source": "confidence_sources",
}
"""Columns of a table, and the arrays with the same meaning."""
_OF_ARRAYS = (
    "probabilities",
    "logits",
    "labels",
    "confidence",
    "correct",
    "predicted",
    "propensity",
    "class_names",
    "ids",
    "sets",
    *_COLUMNS.values(),
)
"""Arrays of an .npz that have a fixed meaning."""
Scale = Literal["probabilities", "logits"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """Facts about a table that its file does not state."""

    label: str = LABEL
    """Column of the labels."""
    scale: Scale | None = None
    """Kind of the classes' numbers. None: as the array's name says, else probabilities."""
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers. For a table, the columns that are classes."""
    positive: str | None = None
    """Class whose probability a single column holds, if the column's name is not a class."""
    first_label: int | None = None
    """Number of the first class, 0 or 1, if labels are numbers. None: the labels show it."""
    labels: Path | None = None
    """File of the labels that belong to an array."""
    resolution: Resolution | None = None
    """Resolution of the probabilities. None: as the rows show it."""
    judge: str | None = None
    """Column or array with the labels of a judge."""
    human: Path | None = None
    """Table of drawn answers with their human labels, which is joined by id."""
    sets: SetRule | None = None
    """Level and calibration rows of the conformal sets in the column `set` or the array `sets`. None: not read."""
    needs_labels: bool = True
    """Whether a file without labels is refused. Otherwise it is read as answers of which none has a label."""


def read(path: Path, form: Form | None = None) -> Answers:
    """Read the answers of a file.

    Args:
        path: File of answers.
        form: Facts about the table that the file does not state.

    Raises:
        FileError: The file has another form, or misses a column, or holds values or labels that cannot be used.
        FileNotFoundError: There is no such file.
        MissingExtraError: A Parquet file needs pyarrow, which is not installed.
    """
    form = form or Form()
    if not path.is_file():
        raise FileNotFoundError(f"{columns.absence(path)}; expected {TABLES}")
    if path.suffix not in (".npz", ".npy", *columns.SUFFIXES):
        raise FileError(f"{columns.suffix_problem(path)}; expected {TABLES}")
    if form.human and path.suffix not in columns.SUFFIXES:
        raise FileError(f"--human-labels {form.human}: {path} has no ids; give a .csv or .parquet with a column id")
    if form.human and not form.human.is_file():
        raise FileNotFoundError(
            f"--human-labels {form.human} does not exist; give the table that `trueodds sample` wrote"
        )
    if form.labels and path.suffix != ".npy":
        raise FileError(f"--labels {form.labels}: {path} holds the labels itself; remove --labels")
    try:
        if path.suffix in columns.SUFFIXES:
            answers = _of_columns(path, form)
        else:
            answers = _of_arrays(path, _arrays(path, form), form)
    except UserError:
        raise
    except ValueError as error:
        raise FileError(f"{path}: {_cure(str(error))}") from None
    if not len(answers):
        raise FileError(f"{path} holds no answers; expected {TABLES}")
    return answers


def _arrays(path: Path, form: Form) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an .npz, or an .npy with the file of its labels."""
    if path.suffix == ".npz":
        return read_npz(path)
    if not form.labels:
        if not form.needs_labels:
            return {form.scale or "probabilities": columns.read_npy(path)}
        raise FileError(f"{path} holds one array; give the file of its labels: --labels labels.npy")
    if not form.labels.is_file():
        raise FileNotFoundError(f"{form.labels} does not exist; expected an .npy of the labels of {path}")
    return {form.scale or "probabilities": columns.read_npy(path), "labels": columns.read_npy(form.labels)}


def _names_of(path: Path, arrays: Mapping[str, npt.NDArray[Any]], form: Form) -> tuple[str, ...]:
    """Return the names of the classes: those of --classes, else those of the file. Other names rename the file's.

    Raises:
        FileError: Both have the same names in different orders.
    """
    own = tuple(map(str, arrays.get("class_names", ())))
    if form.classes and own != tuple(form.classes) and sorted(own) == sorted(form.classes):
        raise FileError(
            f"--classes has the order {quotes(form.classes)}, and class_names of {path} has {quotes(own)}; the columns"
            " are named by their place: leave out --classes"
        )
    return tuple(form.classes) or own


def _of_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], form: Form) -> Answers:
    """Build answers from arrays."""
    labels = _vector(arrays, "labels")
    predicted = _vector(arrays, "predicted")
    rows = next((len(arrays[name]) for name in ("probabilities", "logits", "confidence") if name in arrays), 0)
    groups = _groups({name: arrays.get(array) for name, array in _COLUMNS.items()}, rows, path)
    keys = [Texts.of_array(arrays[IDS])] if IDS in arrays and arrays[IDS].ndim == 1 else []
    if keys and len(keys[0]) == rows:
        of_rows = [column for column in (groups.questions, groups.versions) if column is not None]
        groups = replace(groups, note=" ".join(filter(None, (groups.note, repeats_words([*keys, *of_rows])))))
    classes = _names_of(path, arrays, form)
    propensities = _vector(arrays, "propensity")
    if propensities is not None and len(propensities) != rows:
        raise FileError(f"{path}: propensity has {plural(len(propensities), 'row')} for {rows:,} answers")
    groups = replace(groups, propensities=propensities)
    if form.sets is not None and "sets" not in arrays:
        raise _no_sets(path, "array 'sets'", tuple(arrays))
    if form.judge is not None:
        judge = _judge_of(path, arrays, form.judge)
        if len(judge) != rows:
            raise FileError(f"{path}: {form.judge} has {plural(len(judge), 'row')} for {rows:,} answers")
        groups = replace(groups, judge=judge, human=labels, first_label=form.first_label, classes=classes)
    scale = _scale(path, arrays, form)
    if not scale:
        if "confidence" not in arrays:
            raise _missing(path, ["probabilities"], arrays)
        if form.sets is not None:
            raise FileError(
                f"{path}: sets is an array with a column for each class, and there are no probabilities that show their"
                " order; give probabilities, or a table with a column set"
            )
        correct = _vector(arrays, "correct")
        return _of_confidence(path, arrays["confidence"], correct, predicted, labels, groups, arrays, classes, form)
    if labels is None:
        if form.needs_labels:
            raise _missing(path, ["labels"], arrays)
        labels = _no_labels(rows)
    values, note = arrays[scale], ""
    if scale == "logits":
        if values.shape[1:] in ((), (1,)):
            raise _one_of_logits(path, "array")
        p_NC = softmax(check_logits(values, rows=TELLING_ROWS))
        _check_scale(form)
    else:
        p_NC = both_classes(values)
        if values.ndim == 1 or values.shape[1:] == (1,):
            classes, note = one_column(path.name, None, labels, classes=classes, positive=form.positive)
    answers = of_probabilities(
        path.name,
        p_NC,
        labels,
        classes or numeric_names(path.name, labels, p_NC.shape[-1], form.first_label),
        ordered=True,
        predicted=predicted,
        groups=groups,
        note=note,
        first_label=form.first_label,
        resolution=form.resolution,
    )
    if form.sets is None or answers.predicted is None or answers.label_N is None:
        return answers
    inside = sets_of_array(path.name, arrays["sets"], answers.label_N, answers.predicted.values, form.sets)
    return replace(answers, sets=inside)


def _of_columns(path: Path, form: Form) -> Answers:
    """Build answers from the columns of a table."""
    header = columns.names(path)
    if similar := alike((form.label, *form.classes, *([form.judge] if form.judge else ())), header):
        label, *renamed = (similar.get(name, name) for name in (form.label, *form.classes))
        judge = None if form.judge is None else similar.get(form.judge, form.judge)
        answers = _of_columns(path, replace(form, label=label, classes=tuple(renamed), judge=judge))
        words = [f"The column {other!r} is read as {name!r}." for name, other in similar.items()]
        return replace(answers, notes=(*answers.notes, *words))
    if form.judge is not None:
        _check_judge(path, form.judge, header, form)
    joined = {} if form.human is None else human_labels_of(path, form.human, form.label)
    if joined:
        form = replace(form, needs_labels=False)
    if form.sets is not None and "set" not in header:
        raise _no_sets(path, "column 'set'", header)
    list_column = _list_of_classes(path, header, form)
    if list_column is not None:
        form = _form_of_list(list_column, form)
    by_confidence, of_classes, absent = choose_columns(path, header, form, list_column)
    chances = tuple(name for name in ("propensity", "audit") if by_confidence or name not in of_classes)
    known = (form.label, "predicted", "correct", "question", "tag", "version", "confidence_source", *chances)
    own = form.judge, "set" if form.sets else None
    texts = [name for name in dict.fromkeys((*known, *own)) if name in header]
    times = [name for name in ("time",) if name in header]
    table = _read(path, ("confidence",) if by_confidence else of_classes, texts, times, list_column)
    table.texts.update(joined)
    moments = table.times.get("time")
    repeats = "" if joined else repeats_note(path, header, () if by_confidence else of_classes)
    note = " ".join(filter(None, ("" if moments is None else _note_on_times("time", moments), repeats)))
    groups = Groups(
        tags=table.texts.get("tag"),
        versions=table.texts.get("version"),
        time_ms_N=None if moments is None else moments.ms_N,
        note=note,
        questions=table.texts.get("question"),
        propensities=table.texts.get("propensity"),
        confidence_sources=table.texts.get("confidence_source"),
        audits=table.texts.get("audit"),
    )
    labels, predicted, correct = (table.texts.get(name) for name in (form.label, "predicted", "correct"))
    if form.judge is not None:
        groups = replace(
            groups, judge=table.texts[form.judge], human=labels, first_label=form.first_label, classes=form.classes
        )
    if labels is None and not form.needs_labels:
        labels = _no_labels(len(next(iter(table.numbers.values()))))
    if not by_confidence and _only_correct(joined, form.label):
        raise FileError(
            f"{form.human} says by its column correct whether answers are right, and {path} has probabilities of"
            f" classes; fill in the true class in the column {form.label!r}"
        )
    if by_confidence and joined and predicted is None and correct is None:
        raise FileError(
            f"{path} has no column 'predicted', with which the labels of {form.human} are compared; it has"
            f" {column_quotes(header)}; add the predicted class of each answer, or give {form.human} a column correct"
        )
    if by_confidence:
        confidence = table.numbers["confidence"]
        answers = _of_confidence(path, confidence, correct, predicted, labels, groups, header, form.classes, form)
        if unread := unread_note(header, form):
            answers = replace(answers, notes=(*answers.notes, unread))
        return _with_sets(path, header, answers, table.texts.get("set"), labels, form.classes, predicted, form)
    assert labels is not None
    scale = form.scale or "probabilities"
    numbers = {name: table.numbers[name] for name in of_classes}
    if list_column is not None:
        numbers = _by_class(path, list_column, numbers[list_column], labels, form)
    values_NC, classes, note = of_class_columns(
        path, numbers, labels, form, is_absent=bool(absent), list_column=list_column
    )
    answers = of_probabilities(
        path.name,
        softmax(check_logits(values_NC, rows=TELLING_ROWS)) if scale == "logits" else both_classes(values_NC),
        labels,
        classes,
        ordered=bool(form.classes) or list_column is not None,
        predicted=predicted,
        groups=groups,
        note=note,
        first_label=form.first_label,
        resolution=form.resolution,
    )
    return _with_sets(path, header, answers, table.texts.get("set"), labels, classes, predicted, form)


def _with_sets(
    path: Path,
    header: Sequence[str],
    answers: Answers,
    cells: Texts | None,
    labels: Texts | None,
    classes: tuple[str, ...],
    predicted: Texts | None,
    form: Form,
) -> Answers:
    """Add the sets of a table to its answers, or a note that they are not read."""
    if form.sets is None or cells is None:
        note = (
            "The column set is not read: `trueodds report` and `compare` measure its coverage if --set-level names the"
        )
        note += " level."
        return replace(answers, notes=(*answers.notes, note)) if "set" in header else answers
    if labels is None:
        raise FileError(
            f"{path} has no column {form.label!r}, and coverage needs the true class: correct says only whether the"
            " predicted class is right; add the true class of each answer, or name its column with --label"
        )
    options: dict[str, Any] = {"classes": classes, "predicted": predicted, "first": form.first_label}
    return replace(answers, sets=sets_of_cells(path.name, cells, labels, form.sets, first_row=FIRST, **options))


class ClassColumns(NamedTuple):
    """Numbers of the classes."""

    values_NC: Array
    """N x 1 if a single column holds the probability of one of two classes."""
    classes: tuple[str, ...]
    note: str
    """Sentence on how the columns were read, if their names do not say it."""


def of_class_columns(
    path: Path,
    numbers: Mapping[str, Array],
    labels: Texts,
    form: Form,
    *,
    is_absent: bool,
    list_column: str | None = None,
) -> ClassColumns:
    """Check the columns of the classes, and name the classes.

    Args:
        path: The table, for messages.
        numbers: The columns that `choose_columns` chose.
        labels: True classes.
        form: Facts about the table.
        is_absent: `form.classes` names both classes of a single column.
        list_column: The column whose lists hold the numbers.

    Raises:
        FileError: A number cannot be used, rows do not sum to 1, or the class of a single column is not known.
    """
    scale, of_classes = form.scale or "probabilities", tuple(numbers)
    if scale == "logits":
        _check_scale(form)
    step = form.resolution.step if form.resolution else None
    values_NC = _class_values(path, numbers, scale, step, list_column)
    if len(of_classes) == 1 and scale == "logits":
        raise _one_of_logits(path, f"column {of_classes[0]!r}")
    if len(of_classes) == 1:
        stated = form.classes if is_absent else ()
        return ClassColumns(
            values_NC, *one_column(path.name, of_classes[0], labels, classes=stated, positive=form.positive)
        )
    classes = bare_names(of_classes, labels)
    is_told = bool(form.classes) or scale == "probabilities"
    note = "" if is_told else unlabelled_note(path, of_classes, classes, values_NC, labels)
    return ClassColumns(values_NC, classes, note)


def read_class_columns(path: Path, form: Form, *, apart: Sequence[str] = ()) -> tuple[ClassColumns, Texts]:
    """Read the numbers of the classes of a table, and its labels. The columns `apart` are no classes.

    Raises:
        FileError: As `read`.
    """
    header = columns.names(path)
    if similar := alike((form.label, *form.classes), header):
        label, *renamed = (similar.get(name, name) for name in (form.label, *form.classes))
        form = replace(form, label=label, classes=tuple(renamed))
    header = [name for name in header if name not in apart]
    list_column = _list_of_classes(path, header, form)
    if list_column is not None:
        form = _form_of_list(list_column, form)
    _, of_classes, absent = choose_columns(path, header, form, list_column)
    table = _read(path, of_classes, [form.label], [], list_column)
    labels = table.texts[form.label]
    numbers = (
        table.numbers if list_column is None else _by_class(path, list_column, table.numbers[list_column], labels, form)
    )
    return of_class_columns(path, numbers, labels, form, is_absent=bool(absent), list_column=list_column), labels


def _list_of_classes(path: Path, header: Sequence[str], form: Form) -> str | None:
    """Return the column with a list of numbers, one for each class; None if each class has a column of its own.

    It is the list that --classes names alone, else that called probabilities or logits, else the only column that may
    hold classes, if there is no confidence. Answers with a confidence and without a label are read by their confidence.

    Raises:
        FileError: There are lists of both, or only of the scale that was not asked for.
    """
    if form.label not in header and "confidence" in header and not form.scale:
        return None
    others = _others(header, form)
    found = [name for name in columns.lists(path) if name in others]
    if len(form.classes) == 1 and form.classes[0] in found:
        return form.classes[0]
    if not found or any(name in header for name in form.classes):
        return None
    scales = [name for name in ("probabilities", "logits") if name in found]
    if len(scales) > 1 and not form.scale:
        raise FileError(f"{path} holds lists of probabilities and of logits; choose one: --probabilities or --logits")
    if scales and form.scale not in (None, *scales):
        raise FileError(f"{path} holds lists of {scales[0]}, not of {form.scale}; give --{scales[0]}")
    if scales:
        return form.scale or scales[0]
    if "confidence" in header:  # a list of another name is then some feature of the row
        return None
    return found[0] if (*found,) == others else None


def _form_of_list(name: str, form: Form) -> Form:
    """Return the form of a table whose column `name` holds lists, with the scale that its name says."""
    classes = () if form.classes == (name,) else form.classes
    return replace(form, classes=classes, scale="logits" if name == "logits" else form.scale or "probabilities")


def _by_class(path: Path, name: str, values_NC: Array, labels: Texts, form: Form) -> dict[str, Array]:
    """Return a column for each class of a column of lists. Without names, classes have the numbers of their places."""
    if not len(values_NC):
        values_NC = np.zeros((0, len(form.classes) or 2))
    size = values_NC.shape[1]
    if size == 1:
        return {name: values_NC[:, 0]}
    if form.classes and not len({*form.classes}) == len(form.classes) == size:
        raise FileError(
            f"{path}: the column {name!r} holds {size:,} numbers in each row, and --classes has"
            f" {quotes(form.classes)}; give each number the name of its class, in their order"
        )
    names = form.classes or numeric_names(path.name, labels, size, form.first_label)
    return dict(zip(names, values_NC.T, strict=True))


def _read(
    path: Path, numbers: Sequence[str], texts: Sequence[str], times: Sequence[str], list_column: str | None = None
) -> columns.Columns:
    """Read the columns of a table. A column of text that is taken for a class gets an error with the option for it.

    The numbers of the column `list_column` have a row for each answer and a column for each class.
    """
    if list_column is not None:
        return replace(
            columns.read(path, (), texts, times), numbers={list_column: columns.read_lists(path, list_column)}
        )
    try:
        return columns.read(path, numbers, texts, times)
    except columns.NumberError as error:
        others = [name for name in numbers if name != error.column]
        if not others:
            raise
        texts_of = columns.read(path, (), others).texts
        others = [name for name, cells in texts_of.items() if all(is_number(value) for value in cells.values if value)]
        if error.has_cure and not others:  # all columns are written in this way
            raise
        cure = _naming(others, "logits", error.column)
        raise FileError(f"{error}{cure}{' --positive CLASS' * (len(others) == 1)}") from None


def _no_sets(path: Path, what: str, available: Sequence[str]) -> FileError:
    return FileError(
        f"{path} has no {what}, which --set-level needs; it has {column_quotes(available)}. Add the classes of each"
        " answer's set, or leave out --set-level"
    )


def _only_correct(texts: Mapping[str, Texts], label: str) -> bool:
    """Return whether an answer's human label says only whether the answer is right."""
    if "correct" not in texts:
        return False
    correct_N = texts["correct"].is_known_N
    return bool((correct_N & ~texts[label].is_known_N if label in texts else correct_N).any())


class Chosen(NamedTuple):
    """Columns of a table: whether it holds a confidence, else the columns of the classes."""

    by_confidence: bool
    of_classes: tuple[str, ...]
    absent: list[str]
    """Names of classes that are not columns, because one column holds the probability of one of two classes."""


def choose_columns(path: Path | str, header: Sequence[str], form: Form, list_column: str | None = None) -> Chosen:
    """Choose the columns that hold the numbers. `list_column` is a column that holds those of all classes.

    Raises:
        FileError: A column is missing. The message lists those that are there.
    """
    if list_column is not None:
        if form.needs_labels and form.label not in header:
            raise _no_column(path, form.label, header, "--label")
        return Chosen(False, (list_column,), [])
    others = _others(header, form)
    absent = [name for name in form.classes if name not in header]
    by_confidence = "confidence" in header and not form.scale and len(absent) == len(form.classes)
    one_of_two = len(form.classes) == 2 and len(others) == 1
    if not (by_confidence or form.scale or form.classes):
        _check_spelling(path, header)
    if absent and not by_confidence and not one_of_two:
        raise _no_column(path, absent[0], header, "--classes")
    of_classes = form.classes if form.classes and not absent else others
    if not by_confidence and form.needs_labels and form.label not in header:
        raise _no_column(path, form.label, header, "--label")
    if not by_confidence and not of_classes:
        raise FileError(f"{path} has the columns {quotes(header)}, and none for a class; expected {TABLES}")
    return Chosen(by_confidence, of_classes, absent)


def _others(header: Sequence[str], form: Form) -> tuple[str, ...]:
    """Return the columns without a fixed meaning, which may be classes."""
    taken = (form.label, form.judge, *NOT_CLASSES)
    return tuple(name for name in header if name not in taken and not columns.is_pandas_index(name))


def _check_spelling(path: Path | str, header: Sequence[str]) -> None:
    """Refuse a table of confidences whose columns have other names, such as Confidence and Correct."""
    known = ("confidence", "predicted", "correct")
    other = alike(known, header)
    if "confidence" in other and len({*other, *header}.intersection(known)) > 1:
        cures = [f"{theirs!r} to {name!r}" for name, theirs in other.items()]
        raise FileError(f"{path} has no column 'confidence'; it has {column_quotes(header)}; rename {', '.join(cures)}")


def unread_note(header: Sequence[str], form: Form) -> str:
    """Name columns beside a confidence that would be read if they were spelled otherwise, such as Time; or ""."""
    known = [name for name in NOT_CLASSES if name != "id"]
    others = [name for name in header if name not in (form.label, form.judge, *form.classes)]
    return " ".join(
        f"The column {theirs!r} is not read: rename it to {name!r} if it has that meaning."
        for name, theirs in alike(known, others).items()
    )


def _check_judge(path: Path, judge: str, header: Sequence[str], form: Form) -> None:
    """Check that the judge's column exists and has no other meaning."""
    if judge not in header:
        raise _no_column(path, judge, header, "--judge")
    if judge in (form.label, *form.classes, *NOT_CLASSES):
        raise FileError(
            f"{path}: --judge names the column {judge!r}, which has another meaning; give the judge's labels a column"
            " of their own"
        )


def _judge_of(path: Path, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Texts:
    """Return the judge's labels of an .npz.

    Raises:
        FileError: There is no such array, or it has another meaning.
    """
    if path.suffix != ".npz":
        raise FileError(f"--judge {name}: {path} holds one array; give an .npz that also has the judge's labels")
    if name in _OF_ARRAYS:
        raise FileError(
            f"{path}: --judge names the array {name!r}, which has another meaning; give the judge's labels an array of"
            " their own"
        )
    judge = _vector(arrays, name)
    if judge is None:
        raise FileError(f"{path} has no array {name!r}; it has {quotes(tuple(arrays))}; name it with --judge")
    return judge


def _check_scale(form: Form) -> None:
    """Refuse a resolution for logits."""
    if form.resolution is not None and form.resolution.step is not None:
        raise FileError(
            f"--resolution {form.resolution.step:g} is for probabilities, and these are logits; leave it out"
        )


def _of_confidence(
    path: Path,
    confidence: npt.NDArray[Any],
    correct: Texts | None,
    predicted: Texts | None,
    labels: Texts | None,
    groups: Groups,
    available: Sequence[str] | Mapping[str, Any],
    classes: tuple[str, ...],
    form: Form,
) -> Answers:
    """Build answers from the confidence and either `correct` or both `predicted` and the labels."""
    names = tuple[str, ...]()
    if correct is not None:
        labelled_N, correct_N = correctness(path.name, correct)
    elif predicted is not None and labels is not None:
        predicted, labelled_N, correct_N = agreement(path.name, predicted, labels, classes, form.first_label)
        names = predicted.values
    elif form.needs_labels:
        raise no_outcome(path.name, available)
    else:
        labelled_N = correct_N = np.zeros(len(confidence), np.bool_)
    confidence = as_numbers(confidence, "confidence")
    return of_confidence(
        path.name,
        confidence,
        labelled_N,
        correct_N,
        predicted,
        groups,
        label_names=names,
        resolution=form.resolution,
    )


def _scale(path: Path, arrays: Mapping[str, Any], form: Form) -> Scale | None:
    """Return the name of the array with a number for each class; None if there is none."""
    scales: tuple[Scale, Scale] = ("probabilities", "logits")
    present = [scale for scale in scales if scale in arrays]
    if form.scale and form.scale not in present:
        raise _missing(path, [form.scale], arrays)
    if len(present) == 2 and not form.scale:
        raise FileError(f"{path} holds probabilities and logits; choose one: --probabilities or --logits")
    return form.scale or (present[0] if present else None)


def _vector(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Texts | None:
    """Return an array of one dimension as texts; None if it is missing."""
    if name not in arrays:
        return None
    array = arrays[name]
    if array.ndim != 1:
        hint = ". If each column is a yes/no label of its own, add --multi-label" if name == "labels" else ""
        raise ValueError(f"{name} has shape {array.shape}; expected (rows,), one value for each answer{hint}")
    return Texts.of_array(np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array)


def _no_labels(rows: int) -> Texts:
    """Return the labels of answers of which none has one."""
    return Texts(("",), np.zeros(rows, np.intp))


def _note_on_times(name: str, moments: columns.Times) -> str:
    """Describe how a column of times is read."""
    return time_note(name, moments.unit, near_1970=bool((np.abs(moments.ms_N) < 1000 * TEN_YEARS).all()))


def _groups(columns_by_name: Mapping[str, npt.NDArray[Any] | Texts | None], rows: int, path: Path) -> Groups:
    """Build the groups of the answers."""
    for name, column in columns_by_name.items():
        if column is not None and len(column) != rows:
            raise FileError(f"{path}: {_COLUMNS[name]} has {plural(len(column), 'row')} for {rows:,} answers")
    tags, versions, questions, sources = (
        column if column is None or isinstance(column, Texts) else Texts.of_array(column)
        for column in (columns_by_name[name] for name in ("tag", "version", "question", "confidence_source"))
    )
    if columns_by_name["time"] is None:
        return Groups(tags=tags, versions=versions, questions=questions, confidence_sources=sources)
    moments = columns.times_of(columns_by_name["time"], "times")
    note = _note_on_times("times", moments)
    return Groups(
        tags=tags,
        versions=versions,
        time_ms_N=moments.ms_N,
        note=note,
        questions=questions,
        confidence_sources=sources,
    )


def _one_of_logits(path: Path, name: str) -> FileError:
    """Build the error for a single column of logits."""
    problem = f"{path}: the {name} holds one logit for each answer; expected one for each class"
    return FileError(f"{problem}. With two classes, give 0 for the other class, or give probabilities")


def no_outcome(name: str, available: Sequence[str] | Mapping[str, Any]) -> FileError:
    """Build the error for confidences beside which nothing says what was right."""
    missing = "labels" if "predicted" in available else "predicted" if "label" in available else "correct"
    near = nearest(missing, [other for other in available if other not in ("confidence", "predicted")])
    cure = f"{near} Rename it." if near else ""
    return FileError(
        f"{name} has no {missing!r}; it holds {', '.join(available) or 'nothing'}.{cure} Expected {TABLES}"
    )


def _missing(path: Path, names: Sequence[str], available: Sequence[str] | Mapping[str, Any]) -> FileError:
    """Build the error for missing arrays or columns."""
    return FileError(f"{path} has no {quotes(names)}; it holds {', '.join(available) or 'nothing'}. Expected {TABLES}")


def _no_column(path: Path | str, name: str, header: Sequence[str], option: str) -> FileError:
    """Build the error for a missing column."""
    usual = next((one for one in header if one.lower() in _LABELS), "") if option == "--label" else ""
    cure = f"{option} {usual}." if usual else f"{option}.{nearest(name, header)}"
    words = f"{path} has no column {name!r}; it has {column_quotes(header)}; name it with {cure}"
    if any(one[:2] in ("p_", "z_") and f"y_{one[2:]}" in header for one in header):
        words += " If p_NAME or z_NAME and y_NAME are yes/no labels of their own, add --multi-label."
    headless = any(_FRACTION.fullmatch(cell) for cell in header)
    return FileError(words + " If its first row is an answer, put a row of names above it." * headless)


def _cure(message: str) -> str:
    """Reword an error for users of the command line."""
    if message.startswith("logits holds percentages"):
        return f"{message.partition('. Pass')[0]}; divide them by 100, and leave out --logits"
    if message.startswith("logits holds probabilities"):
        return f"{message.partition('. Pass')[0]}; give --probabilities"
    if "sums to" in message or "If these are logits" in message:
        start = message.partition(". If these are logits")[0]
        return f"{start}; give --logits if these are logits"
    return message


def _class_values(
    path: Path, columns: Mapping[str, Array], scale: str, step: float | None, list_column: str | None = None
) -> Array:
    """Return the columns of the classes side by side, checked.

    All values must be finite. Probabilities must be in [0, 1], and the rows of several columns must sum to 1.
    `list_column` is the column whose lists hold them.
    """
    names = [*columns]
    what = f"the columns {quotes(names)}" if list_column is None else f"the lists of the column {list_column!r}"
    for name, column_N in columns.items():
        sound_N = np.isfinite(column_N)
        if scale == "probabilities":
            sound_N &= (column_N >= -BELOW_ZERO) & (column_N <= 1 + ROW_SUM_TOLERANCE)
        if not sound_N.all():
            row = int(sound_N.argmin())
            problem = "is empty (or NaN)" if np.isnan(column_N[row]) else f"holds {column_N[row]:g}"
            allowed = "[0, 1]" if scale == "probabilities" else "finite numbers"
            where = (
                f"column {name!r}"
                if list_column is None
                else f"number {names.index(name) + 1} of column {list_column!r}"
            )
            if scale == "probabilities" and are_percentages(np.stack([*columns.values()], axis=1)):
                raise FileError(
                    f"{path}, row {row + FIRST}: {where} {problem}; allowed is [0, 1] in every row."
                    f" T{what[1:]} sum to 100 in every row: divide them by 100"
                )
            cure = _naming([other for other in names if other != name], scale, name, list_column)
            if scale == "probabilities" and len(names) == 1 and may_be_percentages(column_N):
                cure = f"{PERCENT_CURE}{cure}"
            raise FileError(f"{path}, row {row + FIRST}: {where} {problem}; allowed is {allowed} in every row{cure}")
    values_NC = np.stack([*columns.values()], axis=1)
    if scale == "probabilities":
        values_NC = without_noise(values_NC)
    if scale == "probabilities" and len(names) > 1 and len(values_NC):
        _check_sums(path, names, values_NC, step, list_column)
    return values_NC


def _check_sums(path: Path, names: list[str], values_NC: Array, step: float | None, list_column: str | None) -> None:
    """Check that every row sums to 1."""
    wrong_N = ~sums_to_one(values_NC, step)
    if wrong_N.any() and step is None and (step := inferred_step(values_NC)) is not None:
        wrong_N = ~sums_to_one(values_NC, step)
    if not wrong_N.any():
        return
    sum_N = values_NC.sum(axis=1)
    row = int(np.where(wrong_N, np.abs(sum_N - 1), 0).argmax())
    rest = (np.abs(sum_N - column_N - 1).max() <= ROW_SUM_TOLERANCE for column_N in values_NC.T)
    extra = [name for name, others_sum_to_1 in zip(names, rest, strict=True) if others_sum_to_1]
    without = f"; without {extra[0]!r} every row sums to 1" if len(extra) == 1 else ""
    others = [name for name in names if name not in extra] if without else []
    what = f"the columns {quotes(names)}" if list_column is None else f"the lists of the column {list_column!r}"
    raise FileError(
        f"{path}, row {row + FIRST}: {what} are read as probabilities of the classes, and sum to"
        f" {sum_N[row]:.6g}; every row {MUST_SUM}{without if list_column is None else ''}"
        f"{_naming(others, 'probabilities', extra[0] if without else '', list_column)}"
    )


def _naming(others: list[str], scale: str, extra: str, list_column: str | None = None) -> str:
    """Advise how to name the columns of the classes. Lists have no columns to name."""
    logits = "; give --logits if these are logits" if scale == "probabilities" else ""
    if list_column is not None:
        return logits
    example = ",".join(others) if 0 < len(others) <= 10 else "a,b,c"
    which = f"If {extra!r} is not a class, name" if extra else "Name"
    return f". {which} the columns of the classes: --classes {example}{logits}"
