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
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.base import Labels
from trueodds.calibrators.held_out import FOLDS, stratified_folds
from trueodds.calibrators.selection import default_candidates, default_words
from trueodds.cli import Subparsers
from trueodds.errors import MissingExtraError, UserError, unknown
from trueodds.files import read_npz, write_json, write_text
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.rows import LABEL
from trueodds.inputs.columns import read_npy
from trueodds.inputs.vector import labelled
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.reports.table.evaluation import CalibrationReport, aligned, report
from trueodds.reports.words import decimal, span
from trueodds.sums.inputs import Array, both_classes, check_labels, check_logits, logits_of
from trueodds.texts import Places, plural

OUT = Path("calibration")
ALL = "all"
AS_IT_IS = "identity"
FORMS = (
    "an .npz with logits and labels, or with val_logits, val_labels, test_logits and test_labels; an .npy of logits"
    " beside --labels; or a .csv or .parquet table with a column of logits for each class, named as it, and one of the"
    " labels"
)
PAIRS = (("logits", "labels"), ("val_logits", "val_labels"))
TEST = ("test_logits", "test_labels")
EXAMPLES = (
    "calibrate logits.npz",
    "calibrate val.csv --test test.csv",
    "calibrate logits.npy --labels labels.npy",
    "calibrate logits.npz --onnx model.onnx",
)


class OptionsError(UserError, ValueError):
    """Options that do not go together."""


@dataclass(frozen=True)
class LogitRows:
    """Rows to fit on, and rows to measure on where the file has some."""

    rows: Logits
    test: Logits | None = None


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
    source = read_logits(
        arguments.logits,
        arguments.label,
        labels=arguments.labels,
        probabilities=arguments.probabilities,
        first=arguments.first_label,
    )
    if arguments.test:
        first = arguments.first_label or 0
        test = read_logits(arguments.test, arguments.label, probabilities=arguments.probabilities, first=first)
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


def _folds(labels_N: Labels) -> Iterator[npt.NDArray[np.bool_]]:
    fold_N = stratified_folds(labels_N, min(FOLDS, len(labels_N)))
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


def read_logits(
    path: Path, label: str, *, labels: Path | None = None, probabilities: bool = False, first: int | None = None
) -> LogitRows:
    """Reads the rows of a file; of `probabilities`, their logarithms. `labels`: the file of those of an .npy.

    `first`: the number of the first class in arrays of labels; None: 0, if one of them holds a 0.

    Raises:
        LabelledRowsError: no such file, another form, logits or labels that cannot be used: it says what is missing.
        FileError: a table that cannot be read, or without labels.
        MissingExtraError: a Parquet file without pyarrow.
    """
    try:
        if path.suffix in (".csv", ".parquet"):
            return LogitRows(_of_table(path, label, probabilities))
        if path.suffix not in (".npz", ".npy"):
            raise LabelledRowsError(f"{path} has the suffix {path.suffix!r}; expected {FORMS}")
        arrays = read_npz(path) if path.suffix == ".npz" else _pair(path, labels)
        pair = next((pair for pair in PAIRS if pair[0] in arrays), PAIRS[0])
        if first is None:
            _check_first(path, arrays, pair)
        rows = _of_arrays(path, arrays, pair, probabilities, first or 0)
        test = _of_arrays(path, arrays, TEST, probabilities, first or 0) if TEST[0] in arrays else None
    except FileNotFoundError as error:
        raise LabelledRowsError(f"{error.filename} does not exist; expected {FORMS}") from None
    except UserError:
        raise
    except ValueError as error:
        raise LabelledRowsError(f"{path}: {_cure(str(error))}") from None
    if test and test.logits_NC.shape[1] != rows.logits_NC.shape[1]:
        sizes = f"{pair[0]} has {rows.logits_NC.shape[1]} classes and test_logits {test.logits_NC.shape[1]}"
        raise LabelledRowsError(f"{path}: {sizes}; give both those of one model")
    return LogitRows(rows, test)


def _pair(path: Path, labels: Path | None) -> dict[str, npt.NDArray[Any]]:
    if labels is None:
        raise LabelledRowsError(f"{path} holds one array; name the file of its labels: --labels labels.npy")
    return dict(zip(PAIRS[0], map(read_npy, (path, labels)), strict=True))


def _check_first(path: Path, arrays: dict[str, npt.NDArray[Any]], pair: tuple[str, str]) -> None:
    """Raises LabelledRowsError for labels that may count from 0 or from 1."""
    labels = [arrays[name] for name in (pair[1], TEST[1]) if name in arrays and arrays[name].dtype.kind in "iu"]
    numbers = np.unique(np.concatenate([array.ravel() for array in labels])) if labels else np.zeros(0, int)
    classes = arrays[pair[0]].shape[-1] if pair[0] in arrays and arrays[pair[0]].ndim == 2 else 0
    if len(numbers) and numbers[0] >= 1 and numbers[-1] <= classes:
        problem = f"{path} has labels from {numbers[0]} to {numbers[-1]} of {classes:,} classes, and none is 0"
        cure = "say which number the first class has: --first-label 0 or --first-label 1"
        raise LabelledRowsError(f"{problem}; {cure}")


def _of_arrays(
    path: Path, arrays: dict[str, npt.NDArray[Any]], names: tuple[str, str], probabilities: bool, first: int
) -> Logits:
    if missing := [name for name in names if name not in arrays]:
        held = ", ".join(arrays)
        raise LabelledRowsError(f"{path} has no array {', '.join(missing)}; it holds {held}. Expected {FORMS}")
    logits_NC = _logits(arrays[names[0]], probabilities)
    rows, classes = logits_NC.shape
    labels_N = arrays[names[1]]
    labels_N = labels_N.astype(np.int64) - first if first and labels_N.dtype.kind in "iu" else labels_N
    return Logits(logits_NC, check_labels(labels_N, rows, classes, names[1]))


def _of_table(path: Path, label: str, probabilities: bool) -> Logits:
    classes, values_NC, names = labelled.read(path, label)
    if len(classes) == 1:
        cure = "give one for each class, such as 1 - p for the other of two"
        raise LabelledRowsError(f"{path} has one column, {classes[0]!r}, beside the labels; {cure}")
    places = Places(classes)
    place = {name: places.get(name) for name in sorted({*names.tolist()})}
    if (strange := next((name for name, k in place.items() if k is None), None)) is not None:
        raise LabelledRowsError(f"{path}: {unknown('label', strange, classes)} The columns of logits are the classes")
    return Logits(_logits(values_NC, probabilities), np.array([place[name] for name in names.tolist()], dtype=np.intp))


def _logits(values: npt.NDArray[Any], probabilities: bool) -> npt.NDArray[np.floating]:
    return logits_of(both_classes(values)) if probabilities else check_logits(values)


def _cure(message: str) -> str:
    """What a caller of `trueodds.fit` would do, for the command line."""
    return f"{message.partition(': every row')[0]}: give --probabilities" if "logits_of" in message else message
