"""Fit of a calibrator to logits of a model that is served elsewhere, and the comparison of all candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.base import Labels
from trueodds.calibrators.held_out import FOLDS, stratified_folds
from trueodds.errors import UserError
from trueodds.files import read_npz
from trueodds.importing import forms
from trueodds.importing.errors import LabelledRowsError
from trueodds.inputs import row_groups
from trueodds.inputs.columns import Texts, absence, names, read_npy, suffix_problem
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.reports.table.classes import check_order, class_indices, order_note
from trueodds.reports.table.evaluation import CalibrationReport, report
from trueodds.reports.table.matching import repeats_note
from trueodds.reports.table.reading import Form, Scale, read_class_columns
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array, as_matrix, both_classes, check_labels, check_logits
from trueodds.sums.rounding import EXACT, Resolution, checked_rows, logits_of
from trueodds.texts import plural, quotes

AS_IT_IS = "identity"
KINDS = ("logits", "probabilities")
"""Names of an array of rows, after `val_` or `test_` where a file holds several splits."""


@dataclass(frozen=True)
class LogitRows:
    """Rows to fit on, and rows to measure on, if the file has some."""

    rows: Logits
    test: Logits | None = None
    arrays: tuple[str, ...] = ()
    """Names of the arrays of an .npz that were read, first that of the rows, then that of the test rows."""
    are_probabilities: bool = False
    """Whether the rows are given as probabilities, which were converted by log."""
    resolution: Resolution = EXACT
    """Resolution of the probabilities from which the logits come."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of the columns. Empty for arrays without class_names."""
    notes: tuple[str, ...] = ()
    """Sentences on how the file was read, where it did not say it."""


@dataclass(frozen=True)
class CandidateReport:
    """Report of a calibrator on rows that its fit did not see. `problem` says why there is no report."""

    name: str
    report: CalibrationReport | None
    problem: str = ""


@dataclass(frozen=True)
class Comparison:
    """The uncalibrated model, every candidate, and the choice."""

    before: CalibrationReport
    table: tuple[CandidateReport, ...]
    calibrator: Calibrator
    """Choice of `select`, fitted on all rows that are not test rows."""
    reason: str
    """Reason for the choice: cross-validated NLL and standard error, compared with the others."""
    passed_over: tuple[str, ...]
    """Candidates with a smaller NLL, and why each was not chosen."""
    after: CalibrationReport
    """Report of the chosen calibrator on the test rows.

    Without test rows it is about all rows, each with the calibrator that the other folds chose and fitted. The winner's
    own line in the table would be optimistic, because it won on those rows.
    """
    folds: int
    """Number of folds; 0 if measured on test rows."""


def compare(
    rows: Logits,
    test: Logits | None,
    candidates: Sequence[str],
    resolution: Resolution = EXACT,
) -> Comparison:
    """Fit each candidate on `rows`, and measure it on `test`, or, without test rows, in 5 stratified folds.

    Args:
        rows: Rows to fit on.
        test: Rows to measure on.
        candidates: Names of the candidates.
        resolution: Resolution of the probabilities from which the logits come.

    Raises:
        ConfigError: A candidate is unknown.
        ValueError: Logits or labels cannot be used.
        LabelledRowsError: There are too few rows for cross-validation: two with test rows, three without.
    """
    if (count := len(rows.labels_N)) < (least := 2 if test else 3):
        where = "" if test else " without test rows"
        raise LabelledRowsError(
            f"{plural(count, 'row')} cannot be divided to compare calibrators; allowed are {least} or more{where}:"
            " give more labelled rows"
        )
    selection = calibrators.select(
        rows.logits_NC, rows.labels_N, candidates=candidates, groups=rows.groups_N, resolution=resolution
    )
    chosen, reason = selection.calibrator, next(line.chosen for line in selection.table if line.chosen)
    passed = tuple(f"{line.name} was passed over: {line.passed_over}" for line in selection.table if line.passed_over)
    why = chosen, reason, passed
    target = test or rows
    # Also for rounded probabilities: the NLL of all lines is then that of one reading, so they can be compared.
    before = _measure(softmax(target.logits_NC), target.labels_N, resolution)
    table = []
    for name in candidates:
        if name == AS_IT_IS:
            continue
        try:
            p_NC = _probabilities(name, rows, test, resolution)
        except FitError as error:
            table.append(CandidateReport(name, None, str(error)))
        else:
            table.append(CandidateReport(name, _measure(p_NC, target.labels_N, resolution)))
    if test:
        after = _measure(chosen(test.logits_NC, groups=test.groups_N), test.labels_N, resolution)
        return Comparison(before, tuple(table), *why, after, 0)
    nested = _probabilities(calibrators.SELECT, rows, None, resolution, candidates=candidates)
    after = _measure(nested, rows.labels_N, resolution)
    return Comparison(before, tuple(table), *why, after, min(FOLDS, len(rows.labels_N)))


def _measure(probabilities_NC: Array, labels_N: npt.NDArray[np.integer], resolution: Resolution) -> CalibrationReport:
    """Return the report of calibrated rows, without an NLL if their probabilities came in too coarse steps."""
    measured = report(probabilities_NC, labels_N)
    if resolution.has_nll:
        return measured
    return replace(measured, nll=None, nll_lower=None, nll_upper=None, nll_unseen=None)


def _probabilities(method: str, rows: Logits, test: Logits | None, resolution: Resolution, **options: Any) -> Array:
    """Return calibrated probabilities of rows that the fit did not see."""
    if test:
        return _fit(method, rows, resolution, options)(test.logits_NC, groups=test.groups_N)
    p_NC = np.empty(rows.logits_NC.shape)
    for inside_N in _folds(rows.labels_N.astype(np.intp)):
        inside = rows.only(inside_N)
        calibrator = _fit(method, rows.only(~inside_N), resolution, options)
        p_NC[inside_N] = calibrator(inside.logits_NC, groups=inside.groups_N)
    return p_NC


def _fit(method: str, rows: Logits, resolution: Resolution, options: Mapping[str, Any]) -> Calibrator:
    """Fit a calibrator to rows. Only one that uses groups gets them."""
    takes_groups = method == calibrators.SELECT or calibrators.get(method).uses_groups
    groups_N = rows.groups_N if takes_groups else None
    return calibrators.fit(rows.logits_NC, rows.labels_N, method, groups=groups_N, resolution=resolution, **options)


def _folds(labels_N: Labels) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the rows of each fold."""
    fold_N = stratified_folds(labels_N, min(FOLDS, len(labels_N)))
    return (fold_N == fold for fold in range(int(fold_N.max()) + 1))


def read_logits(
    path: Path,
    label: str,
    *,
    labels: Path | None = None,
    probabilities: bool = False,
    first: int | None = None,
    resolution: Resolution | None = None,
    groups: str | None = None,
    classes: tuple[str, ...] = (),
    positive: str | None = None,
) -> LogitRows:
    """Read the rows of a file. Rows without a label are left out: an empty cell, or NaN in an array.

    Args:
        path: File with logits.
        label: Column of the labels in a table.
        labels: File of the labels of an .npy.
        probabilities: The file holds probabilities. They are converted by log. Of an .npz with an array `logits` and an
            array `probabilities`, this chooses the one that is read.
        first: Number of the first class in arrays of labels. None: 0, if one of them holds a 0.
        resolution: Resolution of the probabilities. None: as the rows of the fit show it.
        groups: Column of the rows' groups in a table, or their array in an .npz. None: the rows have no groups.
        classes: Columns of a table that are classes, in the order of labels that are numbers. Empty: all columns
            without a meaning of their own.
        positive: Class of two whose probability a single column holds, if the column's name is not a class.

    Raises:
        LabelledRowsError: There is no such file, it has another form, or logits or labels cannot be used.
        FileError: A table cannot be read, or has no labels.
        MissingExtraError: A Parquet file needs pyarrow, which is not installed.
    """
    if not path.is_file():
        raise LabelledRowsError(f"{absence(path)}; expected {forms.LOGITS}")
    try:
        if path.suffix in (".csv", ".parquet"):
            scale: Scale = "probabilities" if probabilities else "logits"
            form = Form(label=label, scale=scale, classes=classes, positive=positive, first_label=first)
            return _of_table(path, form, resolution, groups)
        if path.suffix not in (".npz", ".npy"):
            raise LabelledRowsError(f"{suffix_problem(path)}; expected {forms.LOGITS}")
        if path.suffix == ".npy" and groups is not None:
            raise LabelledRowsError(f"{path} holds one array and no groups; give a table, or an .npz with the array")
        arrays = read_npz(path) if path.suffix == ".npz" else _pair(path, labels)
        kinds = KINDS[::-1] if probabilities else KINDS
        pair = _pair_in(arrays, kinds, ("", "val_")) or _names(kinds[0], "")
        of_test = _pair_in(arrays, kinds, ("test_",))
        pairs = [pair, *filter(None, [of_test])]
        named = tuple(map(str, arrays.get("class_names", ())))
        if named:
            arrays, first = _with_numbers(path, arrays, pairs, named, first), 0
        elif first is None:
            _check_first(path, arrays, pairs)
        rows = _of_arrays(path, arrays, pair, probabilities, first or 0, groups)
        test = _of_arrays(path, arrays, of_test, probabilities, first or 0, groups) if of_test else None
        source = _with_resolution(rows, test, resolution)
    except FileNotFoundError as error:
        raise LabelledRowsError(f"{error.filename} does not exist; expected {forms.LOGITS}") from None
    except UserError:
        raise
    except ValueError as error:
        raise LabelledRowsError(f"{path}: {_cure(str(error))}") from None
    names = tuple(name for name, _ in pairs)
    if source.test and source.test.logits_NC.shape[1] != source.rows.logits_NC.shape[1]:
        sizes = [of.logits_NC.shape[1] for of in (source.rows, source.test)]
        problem = f"{pair[0]} has {sizes[0]} classes and {names[-1]} {sizes[1]}"
        raise LabelledRowsError(f"{path}: {problem}; give rows of the same model in both")
    return replace(source, arrays=names if path.suffix == ".npz" else (), classes=named)


class _Values(NamedTuple):
    """Numbers of the classes as the file has them, and labels."""

    values_NC: npt.NDArray[Any]
    labels_N: Labels
    are_probabilities: bool
    groups_N: GroupNames | None
    note: str = ""
    """Sentence on rows that were left out."""


def _with_resolution(rows: _Values, test: _Values | None, setting: Resolution | None) -> LogitRows:
    """Convert the numbers of a file to logits. The rows of the fit show the resolution of both.

    Raises:
        ValueError: The numbers are not what they are said to be.
    """
    logits, resolution = _to_logits(rows, setting)
    of_test = None
    if test is not None:
        of_test, _ = _to_logits(test, resolution if rows.are_probabilities else setting)
    notes = tuple(filter(None, (rows.note, f"Test rows: {test.note}" if test and test.note else "")))
    return LogitRows(logits, of_test, are_probabilities=rows.are_probabilities, resolution=resolution, notes=notes)


def _to_logits(rows: _Values, setting: Resolution | None) -> tuple[Logits, Resolution]:
    """Return logits and the resolution of the probabilities from which they come."""
    if not rows.are_probabilities:
        return Logits(check_logits(rows.values_NC), rows.labels_N, rows.groups_N), EXACT
    p_NC, resolution = checked_rows(rows.values_NC, setting)
    return Logits(logits_of(p_NC, resolution=resolution), rows.labels_N, rows.groups_N), resolution


def is_of_probabilities(name: str) -> bool:
    """Return whether an array holds probabilities by its name."""
    return name.endswith(KINDS[1])


def _names(kind: str, split: str) -> tuple[str, str]:
    """Return the names of a split's arrays: rows of this kind, and labels."""
    return f"{split}{kind}", f"{split}labels"


def _pair_in(arrays: Mapping[str, object], kinds: Sequence[str], splits: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the first kind of rows that a file holds, with those of the labels; None if it has none."""
    pairs = [_names(kind, split) for kind in kinds for split in splits]
    return next((pair for pair in pairs if pair[0] in arrays), None)


def _pair(path: Path, labels: Path | None) -> dict[str, npt.NDArray[Any]]:
    if labels is None:
        raise LabelledRowsError(f"{path} holds one array; give the file of its labels: --labels labels.npy")
    return dict(zip(_names(KINDS[0], ""), map(read_npy, (path, labels)), strict=True))


def _check_first(path: Path, arrays: dict[str, npt.NDArray[Any]], pairs: Sequence[tuple[str, str]]) -> None:
    """Check that numeric labels show whether they count from 0 or from 1."""
    labels = [_whole(arrays[name])[0] for _, name in pairs if name in arrays]
    labels = [array.ravel() for array in labels if array.dtype.kind in "iu"]
    numbers = np.unique(np.concatenate(labels)) if labels else np.zeros(0, int)
    rows = arrays.get(pairs[0][0])
    classes = 0 if rows is None else rows.shape[1] if rows.ndim == 2 else 2
    if len(numbers) and numbers[0] >= 1 and numbers[-1] <= classes:
        problem = f"{path} has labels from {numbers[0]} to {numbers[-1]} of {classes:,} classes, and none is 0"
        cure = "give the number of the first class: --first-label 0 or --first-label 1"
        raise LabelledRowsError(f"{problem}; {cure}")


def _with_numbers(
    path: Path,
    arrays: dict[str, npt.NDArray[Any]],
    pairs: Sequence[tuple[str, str]],
    classes: tuple[str, ...],
    first: int | None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays with labels that are numbers from 0 on; NaN is no label. `classes` names the columns.

    Raises:
        FileError: A label is not a class, or there is not a name for each column.
    """
    numbered = dict(arrays)
    for rows, labels in pairs:
        if rows not in arrays or labels not in arrays or arrays[labels].ndim != 1:
            continue
        columns = arrays[rows].shape[1] if arrays[rows].ndim == 2 else 1
        if len(classes) != max(columns, 2):
            raise LabelledRowsError(
                f"{path}: class_names has {plural(len(classes), 'name')} for {plural(columns, 'column')} of {rows};"
                " give one for each class"
            )
        texts = Texts.of_array(arrays[labels])
        index_N = class_indices(path.name, "label", texts, classes, first=first).index_N
        numbered[labels] = np.where(index_N < 0, np.nan, index_N)
    return numbered


def _of_arrays(
    path: Path,
    arrays: dict[str, npt.NDArray[Any]],
    names: tuple[str, str],
    probabilities: bool,
    first: int,
    groups: str | None,
) -> _Values:
    if missing := [name for name in names if name not in arrays]:
        available = ", ".join(arrays)
        raise LabelledRowsError(
            f"{path} has no array {', '.join(missing)}; it holds {available}. Expected {forms.LOGITS}"
        )
    are_probabilities = probabilities or is_of_probabilities(names[0])
    values_NC = both_classes(arrays[names[0]]) if are_probabilities else check_logits(arrays[names[0]])
    values_NC = as_matrix(values_NC, names[0])
    labels_N, known_N = _whole(arrays[names[1]])
    groups_N = None if groups is None else row_groups.of_arrays(path, arrays, names[1].removesuffix("labels") + groups)
    if groups_N is not None and len(groups_N) != len(known_N):
        raise LabelledRowsError(f"{path}: {groups} has {len(groups_N)} entries for {len(known_N)} rows")
    if len(known_N) == len(values_NC):
        _check_any_label(path, known_N)
        values_NC = values_NC[known_N]
        groups_N = None if groups_N is None else groups_N[known_N]
    labels_N = labels_N.astype(np.int64) - first if first and labels_N.dtype.kind in "iu" else labels_N
    labels_N = check_labels(labels_N, len(values_NC), values_NC.shape[1], names[1])
    return _Values(values_NC, labels_N, are_probabilities, groups_N, _left_out(known_N))


def _whole(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the labels that are not NaN, as integers if all are whole numbers, and which of all these are."""
    if labels.dtype.kind != "f" or labels.ndim != 1:
        return labels, np.ones(len(labels) if labels.ndim else 0, np.bool_)
    known_N = ~np.isnan(labels)
    known = labels[known_N]
    are_whole = bool((np.isfinite(known) & (known == np.floor(known))).all())
    return known.astype(np.int64) if are_whole else known, known_N


def _of_table(path: Path, form: Form, setting: Resolution | None, groups: str | None) -> LogitRows:
    groups_N = None if groups is None else row_groups.of_table(path, groups, form.label)
    if form.scale == "probabilities":
        form = replace(form, resolution=setting)
    found, labels = read_class_columns(path, form, apart=() if groups is None else (groups,))
    values_NC = both_classes(found.values_NC) if form.scale == "probabilities" else check_logits(found.values_NC)
    label_N, scheme = class_indices(path.name, "label", labels, found.classes, first=form.first_label)
    if scheme != "names" and not form.classes:
        check_order(path.name, values_NC.argmax(axis=1), label_N, found.classes)
    known_N = label_N >= 0
    _check_any_label(path, known_N)
    values = _Values(
        values_NC[known_N],
        label_N[known_N],
        form.scale == "probabilities",
        None if groups_N is None else groups_N[known_N],
        _left_out(known_N),
    )
    rows = _with_resolution(values, None, setting)
    how = order_note(scheme, found.classes, form.first_label or 0)
    repeats = repeats_note(path, names(path), form.classes)
    return replace(rows, classes=found.classes, notes=tuple(filter(None, (found.note, how, *rows.notes, repeats))))


def _check_any_label(path: Path, known_N: npt.NDArray[np.bool_]) -> None:
    """Check that some row has a label."""
    if not known_N.any():
        raise LabelledRowsError(f"{path}: no row of {len(known_N):,} has a label; a fit needs rows with one")


def _left_out(known_N: npt.NDArray[np.bool_]) -> str:
    """Say how many rows have no label; "" if all have one."""
    count = int(np.count_nonzero(~known_N))
    return f"{plural(count, 'row')} without a label left out." if count else ""


def in_class_order(test: LogitRows, rows: LogitRows, path: Path) -> LogitRows:
    """Return test rows of another table with the classes in the order of the rows of the fit.

    Raises:
        LabelledRowsError: The tables have other classes.
    """
    if not rows.classes or not test.classes or test.classes == rows.classes:
        return test
    if {*test.classes} != {*rows.classes}:
        raise LabelledRowsError(
            f"{path} has the classes {quotes(test.classes)}, and the rows of the fit have {quotes(rows.classes)}; give"
            " rows of the same model in both, or name the columns of the classes: --classes"
        )
    order = [test.classes.index(name) for name in rows.classes]
    place = np.argsort(order)

    def turn(split: Logits) -> Logits:
        return replace(split, logits_NC=split.logits_NC[:, order], labels_N=place[split.labels_N])

    own = None if test.test is None else turn(test.test)
    return replace(test, rows=turn(test.rows), test=own, classes=rows.classes)


def _cure(message: str) -> str:
    """Reword an error of `trueodds.fit` for users of the command line."""
    if "holds percentages" in message:
        return f"{message.partition(': every row')[0]}: divide them by 100, and give --probabilities"
    if message.startswith("logits has shape"):
        cure = "with two classes, give 0 for the other one, or name p(positive) probabilities"
        return f"{message.partition(':')[0]}; {cure}"
    if "logits_of" in message:
        return f"{message.partition(': every row')[0]}: give --probabilities"
    if "dtype" in message and "classes.index" in message:
        return f"{message.partition(';')[0]}; expected numbers, or names with an array class_names, in column order"
    return message.replace("apply a calibrator first", "name the array logits, and leave out --probabilities")
