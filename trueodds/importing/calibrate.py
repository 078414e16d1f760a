"""Fit of a calibrator to logits of a model that is served elsewhere, and the comparison of all candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.base import Labels
from trueodds.calibrators.held_out import FOLDS, stratified_folds
from trueodds.errors import UserError, unknown
from trueodds.files import read_npz
from trueodds.importing import forms
from trueodds.importing.errors import LabelledRowsError
from trueodds.inputs.columns import read_npy
from trueodds.inputs.vector import labelled
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.reports.table.evaluation import CalibrationReport, report
from trueodds.sums.inputs import Array, both_classes, check_labels, check_logits, logits_of
from trueodds.texts import Places

AS_IT_IS = "identity"
PAIRS = (("logits", "labels"), ("val_logits", "val_labels"))
TEST = ("test_logits", "test_labels")


@dataclass(frozen=True)
class LogitRows:
    """Rows to fit on, and rows to measure on, if the file has some."""

    rows: Logits
    test: Logits | None = None


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


def compare(rows: Logits, test: Logits | None, candidates: Sequence[str]) -> Comparison:
    """Fit each candidate on `rows`, and measure it on `test`, or, without test rows, in 5 stratified folds.

    Raises:
        ConfigError: A candidate is unknown.
        ValueError: Logits or labels cannot be used, or there are fewer than two rows.
    """
    selection = calibrators.select(rows.logits_NC, rows.labels_N, candidates=candidates)
    chosen, reason = selection.calibrator, next(line.chosen for line in selection.table if line.chosen)
    passed = tuple(f"{line.name} was passed over: {line.passed_over}" for line in selection.table if line.passed_over)
    why = chosen, reason, passed
    target = test or rows
    before = report(softmax(target.logits_NC), target.labels_N)
    table = []
    for name in candidates:
        if name == AS_IT_IS:
            continue
        try:
            p_NC = _probabilities(name, rows, test)
        except FitError as error:
            table.append(CandidateReport(name, None, str(error)))
        else:
            table.append(CandidateReport(name, report(p_NC, target.labels_N)))
    if test:
        return Comparison(before, tuple(table), *why, report(chosen(test.logits_NC), test.labels_N), 0)
    nested = _probabilities(calibrators.SELECT, rows, None, candidates=candidates)
    return Comparison(before, tuple(table), *why, report(nested, rows.labels_N), min(FOLDS, len(rows.labels_N)))


def _probabilities(method: str, rows: Logits, test: Logits | None, **options: Sequence[str]) -> Array:
    """Return calibrated probabilities of rows that the fit did not see."""
    if test:
        return calibrators.fit(rows.logits_NC, rows.labels_N, method, **options)(test.logits_NC)
    p_NC = np.empty(rows.logits_NC.shape)
    for inside_N in _folds(rows.labels_N.astype(np.intp)):
        calibrator = calibrators.fit(rows.logits_NC[~inside_N], rows.labels_N[~inside_N], method, **options)
        p_NC[inside_N] = calibrator(rows.logits_NC[inside_N])
    return p_NC


def _folds(labels_N: Labels) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the rows of each fold."""
    fold_N = stratified_folds(labels_N, min(FOLDS, len(labels_N)))
    return (fold_N == fold for fold in range(int(fold_N.max()) + 1))


def read_logits(
    path: Path, label: str, *, labels: Path | None = None, probabilities: bool = False, first: int | None = None
) -> LogitRows:
    """Read the rows of a file.

    Args:
        path: File with logits.
        label: Column of the labels in a table.
        labels: File of the labels of an .npy.
        probabilities: The file holds probabilities. They are converted by log.
        first: Number of the first class in arrays of labels. None: 0, if one of them holds a 0.

    Raises:
        LabelledRowsError: There is no such file, it has another form, or logits or labels cannot be used.
        FileError: A table cannot be read, or has no labels.
        MissingExtraError: A Parquet file needs pyarrow, which is not installed.
    """
    try:
        if path.suffix in (".csv", ".parquet"):
            return LogitRows(_of_table(path, label, probabilities))
        if path.suffix not in (".npz", ".npy"):
            raise LabelledRowsError(f"{path} has the suffix {path.suffix!r}; expected {forms.LOGITS}")
        arrays = read_npz(path) if path.suffix == ".npz" else _pair(path, labels)
        pair = next((pair for pair in PAIRS if pair[0] in arrays), PAIRS[0])
        if first is None:
            _check_first(path, arrays, pair)
        rows = _of_arrays(path, arrays, pair, probabilities, first or 0)
        test = _of_arrays(path, arrays, TEST, probabilities, first or 0) if TEST[0] in arrays else None
    except FileNotFoundError as error:
        raise LabelledRowsError(f"{error.filename} does not exist; expected {forms.LOGITS}") from None
    except UserError:
        raise
    except ValueError as error:
        raise LabelledRowsError(f"{path}: {_cure(str(error))}") from None
    if test and test.logits_NC.shape[1] != rows.logits_NC.shape[1]:
        sizes = f"{pair[0]} has {rows.logits_NC.shape[1]} classes and test_logits {test.logits_NC.shape[1]}"
        raise LabelledRowsError(f"{path}: {sizes}; give rows of the same model in both")
    return LogitRows(rows, test)


def _pair(path: Path, labels: Path | None) -> dict[str, npt.NDArray[Any]]:
    if labels is None:
        raise LabelledRowsError(f"{path} holds one array; give the file of its labels: --labels labels.npy")
    return dict(zip(PAIRS[0], map(read_npy, (path, labels)), strict=True))


def _check_first(path: Path, arrays: dict[str, npt.NDArray[Any]], pair: tuple[str, str]) -> None:
    """Check that numeric labels show whether they count from 0 or from 1.

    Raises:
        LabelledRowsError: They do not.
    """
    labels = [arrays[name] for name in (pair[1], TEST[1]) if name in arrays and arrays[name].dtype.kind in "iu"]
    numbers = np.unique(np.concatenate([array.ravel() for array in labels])) if labels else np.zeros(0, int)
    classes = arrays[pair[0]].shape[-1] if pair[0] in arrays and arrays[pair[0]].ndim == 2 else 0
    if len(numbers) and numbers[0] >= 1 and numbers[-1] <= classes:
        problem = f"{path} has labels from {numbers[0]} to {numbers[-1]} of {classes:,} classes, and none is 0"
        cure = "give the number of the first class: --first-label 0 or --first-label 1"
        raise LabelledRowsError(f"{problem}; {cure}")


def _of_arrays(
    path: Path, arrays: dict[str, npt.NDArray[Any]], names: tuple[str, str], probabilities: bool, first: int
) -> Logits:
    if missing := [name for name in names if name not in arrays]:
        available = ", ".join(arrays)
        raise LabelledRowsError(
            f"{path} has no array {', '.join(missing)}; it holds {available}. Expected {forms.LOGITS}"
        )
    logits_NC = _logits(arrays[names[0]], probabilities)
    rows, classes = logits_NC.shape
    labels_N = arrays[names[1]]
    labels_N = labels_N.astype(np.int64) - first if first and labels_N.dtype.kind in "iu" else labels_N
    return Logits(logits_NC, check_labels(labels_N, rows, classes, names[1]))


def _of_table(path: Path, label: str, probabilities: bool) -> Logits:
    classes, values_NC, names = labelled.read(path, label)
    if len(classes) == 1:
        cure = "give one column for each class, such as 1 - p for the other one of two"
        raise LabelledRowsError(f"{path} has one column, {classes[0]!r}, beside the labels; {cure}")
    places = Places(classes)
    place = {name: places.get(name) for name in sorted({*names.tolist()})}
    if (strange := next((name for name, k in place.items() if k is None), None)) is not None:
        raise LabelledRowsError(f"{path}: {unknown('label', strange, classes)} The columns of logits are the classes")
    return Logits(_logits(values_NC, probabilities), np.array([place[name] for name in names.tolist()], dtype=np.intp))


def _logits(values: npt.NDArray[Any], probabilities: bool) -> npt.NDArray[np.floating]:
    return logits_of(both_classes(values)) if probabilities else check_logits(values)


def _cure(message: str) -> str:
    """Reword an error of `trueodds.fit` for users of the command line."""
    return f"{message.partition(': every row')[0]}: give --probabilities" if "logits_of" in message else message
