"""Fits a calibrator to the logits of a model that is served elsewhere, and shows every candidate before and after.

Measured on the test rows of the file, or of --test; without them by cross-validation. Into the folder --out go
calibrator.json, the reliability diagrams before and after, and with --onnx the model with the calibrator folded in:
its output is then calibrated probabilities.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trueodds import calibrators
from trueodds.calibrators.selection import default_candidates, default_words
from trueodds.cli import Subparsers
from trueodds.errors import MissingExtraError, UserError
from trueodds.files import write_json, write_text
from trueodds.importing import logit_rows
from trueodds.importing.candidates import Comparison, compare
from trueodds.importing.logit_rows import FORMS, LogitRows
from trueodds.importing.rows import LABEL
from trueodds.reports.table.evaluation import CalibrationReport
from trueodds.reports.words import decimal, span
from trueodds.texts import plural

OUT = Path("calibration")
ALL = "all"
EXAMPLES = (
    "calibrate logits.npz",
    "calibrate val.csv --test test.csv",
    "calibrate logits.npy --labels labels.npy",
    "calibrate logits.npz --onnx model.onnx",
)


class OptionsError(UserError, ValueError):
    """Options that do not go together."""


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
    for when, report in (("before", comparison.before), ("after", comparison.after)):
        files[f"reliability-{when}.svg"] = f"the reliability diagram {when}"
        write_text(arguments.out / f"reliability-{when}.svg", report.svg())
    if arguments.onnx:
        files["model_calibrated.onnx"] = "its output: calibrated probabilities"
        _fold(arguments.onnx, comparison, arguments.out / "model_calibrated.onnx", source)
    print(f"\nIn {arguments.out}:", *(f"  {name}: {about}" for name, about in files.items()), sep="\n")
    return 0


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
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    measured = "" if source.test else "Measured on what each fold chose: "
    notes = [measured + comparison.after.reading, *comparison.calibrator.warnings]
    about = f"{path}: {plural(rows, 'row')}, {plural(classes, 'class', 'classes')}; {how}"
    passed = [f"  {line}" for line in comparison.passed_over]
    chosen = f"Chosen: {comparison.calibrator.name} ({comparison.reason}). {' '.join(notes)}"
    return "\n".join([about, "", *table, *problems, *passed, "", chosen])


def _line(name: str, report: CalibrationReport) -> tuple[str, ...]:
    return (
        name,
        decimal(report.nll, 4),
        span(report.nll_lower, report.nll_upper, digits=4),
        decimal(report.brier, 4),
        decimal(report.ece, 4),
        span(report.ece_lower, report.ece_upper, digits=4),
        f"{decimal(report.floor_mean, 4)} ({decimal(report.floor_p95, 4)})",
    )
