"""Fit a calibrator to the logits of a model that is served elsewhere, and compare all candidates.

They are measured on the test rows of the file, or of --test; without test rows, by cross-validation. The folder --out
gets calibrator.json and the reliability diagrams before and after. With --onnx it also gets the model with the
calibrator added: its output is calibrated probabilities.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trueodds.cli import Subparsers
from trueodds.cli.arguments import add_resolution, resolution_of
from trueodds.cli.conformal_options import add_conformal, set_lines, sets_of
from trueodds.errors import MissingExtraError, UserError
from trueodds.importing import forms
from trueodds.importing.errors import LabelledRowsError
from trueodds.processes.choices import LABEL
from trueodds.texts import plural, quotes

if TYPE_CHECKING:
    from trueodds.calibrators import Calibrator
    from trueodds.importing.calibrate import Comparison, LogitRows
    from trueodds.reports.table.evaluation import CalibrationReport

OUT = Path("calibration")
ALL = "all"
ONNX_NEEDS_LOGITS = "--onnx adds a calibrator to a graph of logits; export logits"
SETS = "conformal.json"
SHOWN_GROUPS = 20
"""Largest number of groups whose temperatures are printed."""
EXAMPLES = (
    "calibrate logits.npz",
    "calibrate val.csv --test test.csv",
    "calibrate scored.csv --label churned --probabilities --classes score --positive 1",
    "calibrate logits.npy --labels labels.npy",
    "calibrate val.csv --groups country",
    "calibrate logits.npz --onnx model.onnx",
    "calibrate logits.npz --conformal lac --levels .9,.95",
    "calibrate photos.csv --multi-label --test test.csv",
)


class CalibrateOptionsError(UserError, ValueError):
    """Options contradict each other."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("calibrate", description=__doc__, epilog=epilog, intermix=True)
    parser.add_argument("logits", type=Path, help=forms.LOGITS)
    parser.add_argument("--test", type=Path, metavar="FILE", help="test rows, in the same form")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="an .npy with the labels of an .npy of logits")
    words = f"the column of a table that holds the labels (default: {LABEL})"
    parser.add_argument("--label", default=LABEL, metavar="COLUMN", help=words)
    words = "the column of a table that holds the rows' groups, or their array in an .npz: a temperature for each group"
    parser.add_argument("--groups", metavar="COLUMN", help=f"{words} becomes a candidate")
    words = "the numbers are probabilities instead of logits, and are converted by log; an .npz that holds an array"
    words += " probabilities and no logits does not need it"
    parser.add_argument("--probabilities", action="store_true", help=words)
    add_resolution(parser)
    words = f"calibrators to choose from, separated by commas, or {ALL} (default: see `trueodds calibrators`)"
    first = "the number of the first class in arrays of labels (default: 0 if there is a 0; otherwise required)"
    parser.add_argument("--first-label", type=int, choices=(0, 1), help=first)
    parser.add_argument("--candidates", default="", metavar="NAMES", help=words)
    words = "the classes are levels, the lowest first: calibrators that keep their order are candidates"
    parser.add_argument("--ordered", action="store_true", help=words)
    words = (
        "each label is a yes/no question of its own, read as `trueodds report --multi-label` reads it; one curve for"
    )
    words += " each label is fitted, and curves of labels with few rows shrink to a shared one"
    parser.add_argument("--multi-label", action="store_true", help=words)
    words = (
        "names, separated by commas: the columns of a table that are classes, in the order of labels that are numbers;"
    )
    parser.add_argument(
        "--classes", default="", metavar="NAMES", help=f"{words} with --multi-label, the labels to calibrate"
    )
    words = "the class of two whose probability a single column holds, unless its name is a class"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    add_conformal(parser)
    parser.add_argument("--onnx", type=Path, metavar="MODEL", help="add the calibrator to this ONNX graph of logits")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"(default: {OUT}/)")


def run(arguments: argparse.Namespace) -> int:
    """Read the rows, print the comparison and write the files."""
    from trueodds import calibrators
    from trueodds.bundle import CardSets
    from trueodds.calibrators import conformal
    from trueodds.calibrators.selection import default_candidates
    from trueodds.files import write_json
    from trueodds.importing.calibrate import compare
    from trueodds.inputs import columns, row_groups

    if arguments.multi_label:
        from trueodds.cli import multi_label

        return multi_label.calibrate(arguments)
    if arguments.logits.suffix not in columns.SUFFIXES:
        for option in ("classes", "positive"):
            if value := getattr(arguments, option):
                raise CalibrateOptionsError(
                    f"--{option} {value}: {arguments.logits} has no columns with names; leave it out"
                )
    if arguments.onnx and arguments.probabilities:
        raise CalibrateOptionsError(f"{ONNX_NEEDS_LOGITS}, and remove --probabilities")
    if arguments.labels and arguments.logits.suffix != ".npy":
        raise CalibrateOptionsError(
            f"--labels {arguments.labels}: {arguments.logits} holds the labels itself; remove --labels"
        )
    settings = sets_of(arguments)
    source, apart = _read(arguments), None
    if settings is not None:
        conformal.check_settings(settings, source.rows.logits_NC.shape[1])
        fitting, apart = conformal.rows_apart(source.rows, settings)
        source = replace(source, rows=fitting)
    rows = source.rows
    grouped = arguments.groups is not None
    classes, count = rows.logits_NC.shape[1], len(rows.labels_N)
    names = default_candidates(classes, count, ordered=arguments.ordered, has_groups=grouped)
    if arguments.candidates:
        names = tuple(name.strip() for name in arguments.candidates.split(","))
    candidates = calibrators.names(has_groups=grouped) if names == (ALL,) else names
    if rows.groups_N is not None:
        row_groups.check_any(arguments.logits, rows.groups_N, arguments.groups)
    if grouped and not any(calibrators.get(name).uses_groups for name in candidates):
        raise CalibrateOptionsError(
            f"--groups {arguments.groups} is given, and none of the candidates {', '.join(candidates)} reads groups;"
            " add group_temperature, or leave --groups out"
        )
    comparison = compare(source.rows, source.test, candidates, source.resolution)
    print(_text(arguments.logits, source, comparison))
    (arguments.out / SETS).unlink(missing_ok=True)  # sets of an earlier run are those of another calibrator
    files = _write(arguments, source, comparison)
    if settings is not None and apart is not None:
        calibrator = comparison.calibrator
        sets = conformal.fit_sets(calibrator, apart.logits_NC, apart.labels_N, settings, apart.groups_N)
        test = None if source.test is None else (source.test.logits_NC, source.test.labels_N)
        rules = CardSets.of(sets, settings, calibrator, test, source.test.groups_N if source.test else None)
        print("", *set_lines(rules)[:-1], *conformal.few_rows_notes(rules.rules), sep="\n")
        files[SETS] = "trueodds.calibrators.conformal.ConformalSets.from_json restores it"
        write_json(arguments.out / SETS, sets.to_json())
    print(f"\nIn {arguments.out}:", *(f"  {name}: {about}" for name, about in files.items()), sep="\n")
    return 0


def _read(arguments: argparse.Namespace) -> LogitRows:
    """Read the rows, with the test rows of --test."""
    from trueodds.importing.calibrate import in_class_order, read_logits

    given = resolution_of(arguments)
    classes = tuple(name.strip() for name in arguments.classes.split(",") if name.strip())
    source = read_logits(
        arguments.logits,
        arguments.label,
        labels=arguments.labels,
        probabilities=arguments.probabilities,
        first=arguments.first_label,
        resolution=given,
        groups=arguments.groups,
        classes=classes,
        positive=arguments.positive,
    )
    if given is not None and not source.are_probabilities:
        raise CalibrateOptionsError(
            f"--resolution {arguments.resolution}: {arguments.logits} is read as logits; give --probabilities too, or"
            " leave it out"
        )
    if arguments.onnx and source.are_probabilities:
        raise CalibrateOptionsError(f"{ONNX_NEEDS_LOGITS}: {arguments.logits} holds probabilities")
    if not arguments.test:
        return source
    test = read_logits(
        arguments.test,
        arguments.label,
        probabilities=arguments.probabilities,
        first=arguments.first_label or 0,
        resolution=given if source.resolution.step is None else source.resolution,
        groups=arguments.groups,
        classes=classes,
        positive=arguments.positive,
    )
    test = in_class_order(test, source, arguments.test)
    if test.resolution.step != source.resolution.step:
        raise LabelledRowsError(
            f"{arguments.test} shows steps of {test.resolution.step:g}, and {arguments.logits} shows none; give the"
            f" step with --resolution {test.resolution.step:g}, or --resolution exact"
        )
    notes = *source.notes, *(f"{arguments.test}: {note}" for note in test.notes if note not in source.notes)
    return replace(source, test=test.test or test.rows, arrays=source.arrays[:1] + test.arrays[-1:], notes=notes)


def _write(arguments: argparse.Namespace, source: LogitRows, comparison: Comparison) -> dict[str, str]:
    """Write the calibrator, the diagrams and the model. Return the files' names, and what they are for."""
    from trueodds.files import write_json, write_text

    arguments.out.mkdir(parents=True, exist_ok=True)
    files = {"calibrator.json": "trueodds.calibrators.from_json restores it"}
    write_json(arguments.out / "calibrator.json", comparison.calibrator.to_json())
    for when, measured in (("before", comparison.before), ("after", comparison.after)):
        files[f"reliability-{when}.svg"] = f"the reliability diagram {when}"
        write_text(arguments.out / f"reliability-{when}.svg", measured.svg())
    if arguments.onnx:
        order = f" of {quotes(source.classes)}, if the graph's outputs are in this order" if source.classes else ""
        files["model_calibrated.onnx"] = f"output: calibrated probabilities{order}"
        _fold(arguments.onnx, comparison, arguments.out / "model_calibrated.onnx", source)
    return files


def _fold(model: Path, comparison: Comparison, out: Path, source: LogitRows) -> None:
    """Write the ONNX model with the calibrator."""
    try:
        from trueodds.importing.folding import fold

        fold(model, comparison.calibrator, out, source.rows.logits_NC)
    except ModuleNotFoundError as error:
        raise MissingExtraError("--onnx", error.name or "onnx", "import") from None


def _text(path: Path, source: LogitRows, comparison: Comparison) -> str:
    """Format the comparison."""
    from trueodds import calibrators
    from trueodds.importing.calibrate import AS_IT_IS
    from trueodds.reports.resolution import read_as_words
    from trueodds.reports.words import align

    rows, classes = source.rows.logits_NC.shape
    how = f"measured in {comparison.folds} folds, on rows that the fit did not see"
    if source.test:
        how = f"measured on {plural(len(source.test.labels_N), 'test row')}"
    lines: list[tuple[str, ...]] = [("", "NLL", "95% interval", "Brier", "ECE", "95% interval", "noise floor (95%)")]
    problems = []
    own = comparison.calibrator
    chosen_name = own.calibrator.name if isinstance(own, calibrators.Rounded) else own.name
    lines.append(_line("* no calibration" if chosen_name == AS_IT_IS else "  no calibration", comparison.before))
    for each in comparison.table:
        mark = "*" if each.name == chosen_name else " "
        if each.report:
            lines.append(_line(f"{mark} {each.name}", each.report))
        else:
            problems.append(f"  {each.name}: {each.problem}")
    if not source.test:
        lines.append(_line("  chosen in each fold", comparison.after))
    measured = "" if source.test else "Measured with the choice of each fold: "
    notes = [measured + comparison.after.reading, *comparison.calibrator.warnings]
    about = f"{path}: {plural(rows, 'row')}, {plural(classes, 'class', 'classes')}; {how}{_read_words(source)}"
    passed = [f"  {line}" for line in comparison.passed_over]
    kept = ", no calibration" if chosen_name == AS_IT_IS else ""
    chosen = f"Chosen: {chosen_name}{kept} ({comparison.reason}). {' '.join(notes)}"
    if told := [*source.notes, *filter(None, [comparison.before.doubt])]:
        about = f"{about}\n{' '.join(told)}"
    if read_as := read_as_words(source.resolution):
        about = f"{about}\n{read_as}"
        if source.resolution.step is not None:
            about += (
                " NLL and Brier score below, with their intervals, are those of this reading: they compare the lines,"
                " and do not limit the exact values."
            )
    by_group = group_lines(own)
    return "\n".join([about, "", *align(lines, "<" * len(lines[0])), *problems, *passed, "", chosen, *by_group])


def group_lines(calibrator: Calibrator) -> list[str]:
    """Return the temperature of each group, the largest group first; no lines for a calibrator without groups."""
    from trueodds.calibrators import GroupTemperature, Rounded
    from trueodds.reports.words import align

    own = calibrator.calibrator if isinstance(calibrator, Rounded) else calibrator
    if not isinstance(own, GroupTemperature) or not own.groups:
        return []
    rows = own.group_rows
    shown = sorted(rows, key=lambda name: (-rows[name], name))[:SHOWN_GROUPS]
    lines = [("group", "rows", "temperature")]
    lines += [(f"  {name}", f"{rows[name]:,}", f"{own.temperatures[name]:.4g}") for name in shown]
    lines.append(("  any other", "", f"{own.temperature:.4g}"))
    more = [f"  and {len(rows) - len(shown):,} groups with fewer rows"] * (len(rows) > len(shown))
    return ["", *align(lines, "<>>"), *more]


def _read_words(source: LogitRows) -> str:
    """Return the name of the array that was read, and whether it was converted."""
    from trueodds.importing.calibrate import is_of_probabilities

    read = source.arrays or ("probabilities",) * source.are_probabilities
    converted = source.are_probabilities or any(is_of_probabilities(name) for name in read)
    how = "; probabilities are converted to logits by log" * converted
    return f"\nRead: {' and '.join(dict.fromkeys(read))}{how}." if read else ""


def _line(name: str, one: CalibrationReport) -> tuple[str, ...]:
    from trueodds.reports.words import decimal, span

    return (
        name,
        decimal(one.nll, 4),
        span(one.nll_lower, one.nll_upper, digits=4),
        decimal(one.brier, 4),
        decimal(one.ece, 4),
        span(one.ece_lower, one.ece_upper, digits=4),
        f"{decimal(one.floor_mean, 4)} ({decimal(one.floor_p95, 4)})",
    )
