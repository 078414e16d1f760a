"""Calibrators compared on logits: each on rows that its fit did not see, and the one to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.base import Labels
from trueodds.calibrators.held_out import FOLDS, stratified
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.reports.table.evaluation import CalibrationReport, report
from trueodds.sums.inputs import Array

AS_IT_IS = "identity"


@dataclass(frozen=True)
class CandidateReport:
    """A calibrator on rows that its fit did not see; `problem`: why there is no report."""

    name: str
    report: CalibrationReport | None
    problem: str = ""


@dataclass(frozen=True)
class Comparison:
    """The model as it is, every candidate, and what to take."""

    before: CalibrationReport
    table: tuple[CandidateReport, ...]
    calibrator: Calibrator
    """Choice of `select`, fitted on all rows that are not for testing."""
    reason: str
    """Why: its cross-validated NLL and standard error, beside the others'."""
    passed_over: tuple[str, ...]
    """The candidates of less NLL, and why each was not taken."""
    after: CalibrationReport
    """Of the test rows; without them, of all rows by what the other folds alone would have chosen and fitted: the
    winner's own line in the table is that of rows it won on."""
    folds: int
    """0: measured on test rows."""


def compare(rows: Logits, test: Logits | None, candidates: Sequence[str]) -> Comparison:
    """Fits each candidate on `rows`, and measures it on `test`, or without test rows in 5 stratified folds.

    Raises:
        ConfigError: an unknown candidate.
        ValueError: logits or labels that cannot be used, two rows at least.
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
            p_NC = _calibrated(name, rows, test)
        except FitError as error:
            table.append(CandidateReport(name, None, str(error)))
        else:
            table.append(CandidateReport(name, report(p_NC, target.labels_N)))
    if test:
        return Comparison(before, tuple(table), *why, report(chosen(test.logits_NC), test.labels_N), 0)
    nested = _calibrated(calibrators.SELECT, rows, None, candidates=candidates)
    return Comparison(before, tuple(table), *why, report(nested, rows.labels_N), min(FOLDS, len(rows.labels_N)))


def _calibrated(method: str, rows: Logits, test: Logits | None, **options: Sequence[str]) -> Array:
    """Probabilities of rows that the fit did not see."""
    if test:
        return calibrators.fit(rows.logits_NC, rows.labels_N, method, **options)(test.logits_NC)
    p_NC = np.empty(rows.logits_NC.shape)
    for inside_N in _folds(rows.labels_N.astype(np.intp)):
        calibrator = calibrators.fit(rows.logits_NC[~inside_N], rows.labels_N[~inside_N], method, **options)
        p_NC[inside_N] = calibrator(rows.logits_NC[inside_N])
    return p_NC


def _folds(labels_N: Labels) -> Iterator[np.typing.NDArray[np.bool_]]:
    fold_N = stratified(labels_N, min(FOLDS, len(labels_N)))
    return (fold_N == fold for fold in range(int(fold_N.max()) + 1))
