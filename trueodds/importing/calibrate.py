"""Fits a calibrator to the logits of a model that is served elsewhere, and shows every candidate before and after.

Measured on the test rows of the file, or of --test; without them by cross-validation. Into the folder --out go
calibrator.json, the reliability diagrams before and after, and with --onnx the model with the calibrator folded in:
its output is then calibrated probabilities.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.base import Labels
from trueodds.calibrators.held_out import FOLDS, stratified
from trueodds.calibrators.selection import default_candidates, default_words
from trueodds.cli import Subparsers
from trueodds.errors import MissingExtraError, UserError
from trueodds.files import write_json, write_text
from trueodds.importing import logit_rows
from trueodds.importing.logit_rows import FORMS, LogitRows
from trueodds.importing.rows import LABEL
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.reports.table.evaluation import CalibrationReport, aligned, report
from trueodds.reports.words import decimal, span
from trueodds.sums.inputs import Array
from trueodds.texts import plural

OUT = Path("calibration")
ALL = "all"
AS_IT_IS = "identity"
EXAMPLES = (
    "calibrate logits.npz",
    "calibrate val.csv --test test.csv",
    "calibrate logits.npy --labels labels.npy",
    "calibrate logits.npz --onnx model.onnx",
)


class OptionsError(UserError, ValueError):
    """Options that do not go together."""


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


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("calibrate", description=__doc__, epilog=epilog, intermixed=True)
    parser.add_argument("logits", type=Path, help=FORMS)
    parser.add_argument("--test", type=Path, metavar="FILE", help="rows to measure on, in the same form")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="the labels of an .npy of logits: an .npy")
    words = f"the column of a table that holds the labels (default: {LABEL})"
    parser.add_argument("--label", default=LABEL, metavar="COLUMN", help=words)
    words = "the file holds probabilities in place of logits: their logarithms are taken"
    parser.add_argument("--probabilities", action="store_true", help=words)
    words = f"calibrators to choose from, with commas, or {ALL} (default: {default_words()})"
    first = "the number of the first class in arrays of labels (default: 0 if there is a 0; else it must be said)"
    parser.add_argument("--first-label", type=int, choices=(0, 1), help=first)
    parser.add_argument("--candidates", default="", metavar="NAMES", help=words)
    parser.add_argument("--onnx", type=Path, metavar="MODEL", help="fold the calibrator into this graph of logits")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"(default: {OUT}/)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.onnx and arguments.probabilities:
        raise OptionsError("--onnx folds a calibrator behind logits; export the logits, and leave out --probabilities")
    if arguments.labels and arguments.logits.suffix != ".npy":
        raise OptionsError(f"--labels {arguments.labels}: {arguments.logits} holds its labels; leave out --labels")
    source = logit_rows.read(
        arguments.logits,
        arguments.label,
        labels=arguments.labels,
        probabilities=arguments.probabilities,
        first=arguments.first_label,
    )
    if arguments.test:
        first = arguments.first_label or 0
        test = logit_rows.read(arguments.test, arguments.label, probabilities=arguments.probabilities, first=first)
        source = LogitRows(source.rows, test.test or test.rows)
    names = default_candidates(source.rows.logits_NC.shape[1], len(source.rows.labels_N))
    if arguments.candidates:
        names = tuple(name.strip() for name in arguments.candidates.split(","))
    comparison = compare(source.rows, source.test, calibrators.names() if names == (ALL,) else names)
    print(_text(arguments.logits, source, comparison))
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = {"calibrator.json": "trueodds.calibrators.from_json restores it"}
    write_json(arguments.out / "calibrator.json", comparison.calibrator.to_json())
    for when, measured in (("before", comparison.before), ("after", comparison.after)):
        files[f"reliability-{when}.svg"] = f"the reliability diagram {when}"
        write_text(arguments.out / f"reliability-{when}.svg", measured.svg())
    if arguments.onnx:
        files["model_calibrated.onnx"] = "its output: calibrated probabilities"
        _fold(arguments.onnx, comparison, arguments.out / "model_calibrated.onnx", source)
    print(f"\nIn {arguments.out}:", *(f"  {name}: {about}" for name, about in files.items()), sep="\n")
    return 0


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


def _fold(model: Path, comparison: Comparison, out: Path, source: LogitRows) -> None:
    try:
        from trueodds.importing.folding import fold

        fold(model, comparison.calibrator, out, source.rows.logits_NC)
    except ModuleNotFoundError as error:
        raise MissingExtraError("--onnx", error.name or "onnx", "import") from None


def _text(path: Path, source: LogitRows, comparison: Comparison) -> str:
    rows, classes = source.rows.logits_NC.shape
    how = f"each candidate by {comparison.folds} folds, on rows that its fit did not see"
    if source.test:
        how = f"measured on {plural(len(source.test.labels_N), 'test row')}"
    lines: list[tuple[str, ...]] = [("", "NLL", "95% interval", "Brier", "ECE", "95% interval", "noise floor (95%)")]
    lines.append(_line("  no calibration", comparison.before))
    problems = []
    for each in comparison.table:
        mark = "*" if each.name == comparison.calibrator.name else " "
        if each.report:
            lines.append(_line(f"{mark} {each.name}", each.report))
        else:
            problems.append(f"  {each.name}: {each.problem}")
    if not source.test:
        lines.append(_line("  chosen in each fold", comparison.after))
    measured = "" if source.test else "Measured on what each fold chose: "
    notes = [measured + comparison.after.reading, *comparison.calibrator.warnings]
    about = f"{path}: {plural(rows, 'row')}, {plural(classes, 'class', 'classes')}; {how}"
    passed = [f"  {line}" for line in comparison.passed_over]
    chosen = f"Chosen: {comparison.calibrator.name} ({comparison.reason}). {' '.join(notes)}"
    return "\n".join([about, "", *aligned(lines, "<" * len(lines[0])), *problems, *passed, "", chosen])


def _line(name: str, one: CalibrationReport) -> tuple[str, ...]:
    return (
        name,
        decimal(one.nll, 4),
        span(one.nll_lower, one.nll_upper, digits=4),
        decimal(one.brier, 4),
        decimal(one.ece, 4),
        span(one.ece_lower, one.ece_upper, digits=4),
        f"{decimal(one.floor_mean, 4)} ({decimal(one.floor_p95, 4)})",
    )
