"""Reports, fits and imports of independent yes/no labels, for the commands with --multi-label."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy

from trueodds.calibrators.affine.label_platt import FOLDS, MultilabelPlatt, cross_fit_arrays
from trueodds.cli.tables import OptionsError, form_of
from trueodds.files import write_json, write_text
from trueodds.processes import limited
from trueodds.processes.choices import LABEL, TOLERANCE
from trueodds.reports.options import ReportOptions
from trueodds.reports.table.multilabel import MOST_LINES, MultilabelReport, report_of_rows
from trueodds.reports.table.multilabel_reading import SMALLEST, read_label_logits, read_labels
from trueodds.reports.table.multilabel_rows import MultilabelRows
from trueodds.reports.table.reading import Form
from trueodds.reports.words import align, decimal, span
from trueodds.texts import hide_password, plural, quotes

if TYPE_CHECKING:
    from trueodds.importing.import_options import ImportOptions

_OF_CLASSES = {
    "--positive": "positive",
    "--ordered": "ordered",
    "--first-label": "first_label",
    "--costs": "costs",
    "--fit-rows": "fit_rows",
    "--ratio-tolerance": "ratio_tolerance",
    "--by": "by",
    "--trend": "trend",
    "--judge": "judge",
    "--human-labels": "human_labels",
    "--reference": "reference",
    "--engine": "engine",
    "--id": "id",
    "SUMS": "more",
}
"""Options of exclusive classes, and their places in the arguments."""


def report(arguments: argparse.Namespace, options: ReportOptions) -> int:
    """Read the table of `trueodds report --multi-label`, print its report and write the files."""
    _refuse(arguments, _OF_CLASSES)
    for place in (arguments.answers, arguments.labels):
        if isinstance(place, str):
            raise OptionsError(
                f"{hide_password(place)} is a URL; allowed with --multi-label is the path of a file: copy it to this"
                " machine first"
            )
    if arguments.tolerance != TOLERANCE:
        raise OptionsError(
            f"--tolerance {arguments.tolerance:g} is given beside --multi-label, whose report has no status; leave out"
            " one"
        )
    found = report_of_rows(read_labels(arguments.answers, form_of(arguments)), options)
    print(found)
    if arguments.json:
        write_json(arguments.json, found.to_dict())
    if arguments.html:
        write_text(arguments.html, found.page())
    if files := [str(path) for path in (arguments.json, arguments.html) if path]:
        print(f"\nWritten: {', '.join(files)}")
    return 0


_OF_FITS = {
    "--candidates": "candidates",
    "--groups": "groups",
    "--ordered": "ordered",
    "--positive": "positive",
    "--first-label": "first_label",
    "--onnx": "onnx",
    "--conformal": "conformal",
    "--levels": "levels",
    "--set-confidence": "set_confidence",
    "--resolution": "resolution",
}
"""Options of `trueodds calibrate` for exclusive classes, and their places in the arguments."""


def calibrate(arguments: argparse.Namespace) -> int:
    """Read the table of `trueodds calibrate --multi-label`, fit, print the comparison and write the files."""
    _refuse(arguments, _OF_FITS)
    if arguments.test is not None and arguments.test.suffix == ".npy":
        raise OptionsError(
            f"--test {arguments.test} holds no truths, and --labels names those of {arguments.logits}; give a table"
            " or an .npz with the logits and the truths of the test rows"
        )
    form = _form(arguments)
    names, z_NL, truth_NL, from_p = read_label_logits(arguments.logits, form)
    extreme = int((np.abs(z_NL) > -scipy.special.logit(2 * SMALLEST)).sum()) if from_p else 0
    fitted = MultilabelPlatt.fit_arrays(z_NL, truth_NL, names)
    if arguments.test is None:
        tested_NL = cross_fit_arrays(z_NL, truth_NL)
        how = f"measured in {FOLDS} folds of whole rows, which the fit did not see"
    else:
        form = replace(form, labels=None, classes=names if arguments.test.suffix in (".csv", ".parquet") else ())
        others, z_NL, truth_NL, _ = read_label_logits(arguments.test, form)
        if others != names:
            raise OptionsError(
                f"{arguments.test} has the labels {quotes(others)}, and {arguments.logits} has {quotes(names)}; give"
                " both the same labels in the same order"
            )
        tested_NL, how = fitted.apply(z_NL), f"measured on the {len(z_NL):,} rows of {arguments.test}"
    before, after = (
        report_of_rows(MultilabelRows(p_NL, truth_NL, names), ReportOptions(one_look=True))
        for p_NL in (scipy.special.expit(z_NL), tested_NL)
    )
    print("\n".join(_lines(arguments, fitted, before, after, how, from_p, extreme)))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "conformal.json").unlink(missing_ok=True)  # sets of an earlier run are those of another calibrator
    write_json(arguments.out / "calibrator.json", fitted.to_json())
    files = {"calibrator.json": "trueodds.load restores it"}
    for when, measured in (("before", before), ("after", after)):
        write_text(arguments.out / f"report-{when}.html", measured.page())
        files[f"report-{when}.html"] = f"the report {when}"
    print(f"\nIn {arguments.out}:", *(f"  {name}: {about}" for name, about in files.items()), sep="\n")
    return 0


_OF_IMPORTS = {
    "--positive": "positive",
    "--ordered": "ordered",
    "--conformal": "conformal",
    "--levels": "levels",
    "--set-confidence": "set_confidence",
    "--expected": "expected",
    "--allow-unseen": "allow_unseen",
    "--groups": "groups",
}
"""Options of `trueodds import` for exclusive classes, and their places in the arguments."""


def import_model(arguments: argparse.Namespace, name: str, folder: Path, options: ImportOptions) -> int:
    """Read the rows of `trueodds import --multi-label`, write the bundle to `folder`, and print the summary."""
    from trueodds.importing import label_rows
    from trueodds.importing.label_importer import import_labels
    from trueodds.importing.labelled_rows import ImportRows

    _refuse(arguments, _OF_IMPORTS)
    texts, read = options.input == "text", dict[Path, ImportRows]()
    for place in filter(None, (arguments.labelled, arguments.test)):
        limited.step(f"reading {place}")
        names = options.classes or next((rows.classes for rows in read.values()), ())  # test rows in the same order
        read[place] = label_rows.read(place, names, texts=texts)
    test = read[arguments.test] if arguments.test else None
    outcome = import_labels(arguments.model, read[arguments.labelled], folder, name=name, options=options, test=test)
    card = outcome.bundle.card
    about = f"{card.name}: {plural(len(card.classes), 'label')}, {card.input.kind} {card.input.size}"
    lines = [
        f"{about}; {plural(outcome.calibration, 'calibration row')}, {plural(outcome.after.n, 'test row')}",
        *(f"note: {note}" for note in card.notes),
        "",
        *comparison_lines(outcome.bundle.calibrator, outcome.before, outcome.after, "the card has all labels"),
        "",
        " ".join(
            [_shared_curve(outcome.bundle.calibrator), outcome.after.reading, *outcome.bundle.calibrator.warnings]
        ),
    ]
    print("\n".join(lines))
    return 0


def _lines(
    arguments: argparse.Namespace,
    calibrator: MultilabelPlatt,
    before: MultilabelReport,
    after: MultilabelReport,
    how: str,
    from_p: bool,
    extreme: int,
) -> list[str]:
    """Format the comparison with what was read, how it was measured, and the reading."""
    read = " Probabilities are converted to logits." if from_p else ""
    if extreme:
        read += (
            f" Probabilities of 0 and 1 ({extreme:,} here) count as {SMALLEST:g} and 1 - {SMALLEST:g}, which can"
            " flatten the curves: give logits, or probabilities that are not rounded."
        )
    kept = []
    if before.whole.nll is not None and after.whole.nll is not None and after.whole.nll >= before.whole.nll:
        kept = ["The log loss does not fall on rows that the fit did not see: keep the model's own probabilities."]
    about = f"{arguments.logits}: {plural(before.n, 'row')}, {plural(before.labels, 'label')}; {how}.{read}"
    return [
        about,
        "",
        *comparison_lines(calibrator, before, after, "calibrator.json, report-after.html"),
        "",
        " ".join([*kept, _shared_curve(calibrator), after.reading, *calibrator.warnings]),
    ]


def comparison_lines(
    calibrator: MultilabelPlatt,
    before: MultilabelReport,
    after: MultilabelReport,
    where_all: str,
    names: tuple[str, str] = ("  no calibration", "* multilabel_platt"),
) -> list[str]:
    """Format the comparison of two calibrations: all labels, then each label with its curve.

    Args:
        calibrator: The calibrator of `after`.
        before: Report before it.
        after: Report after it.
        where_all: Place of the labels that are not printed.
        names: Names of the two calibrations.
    """
    head = ("", "log loss", "95% interval", "Brier", "ECE estimate", "95% interval", "labels marked")
    rows = [head]
    for name, one in zip(names, (before, after), strict=True):
        whole, marked = one.whole, sum(label.more_than_chance for label in one.by_label)
        rows.append(
            (
                name,
                decimal(whole.nll, 4),
                span(whole.nll_lower, whole.nll_upper, digits=4),
                decimal(whole.brier, 4),
                decimal(whole.ece_estimate, 4),
                span(whole.ece_lower, whole.ece_upper, digits=4),
                f"{marked:,} of {one.labels:,}",
            )
        )
    of_labels = [("label", "rows", "true", "slope", "offset", "log loss", "after", "ECE", "after")]
    slope_L, offset_L = np.asarray(calibrator.slope_L), np.asarray(calibrator.offset_L)
    pairs = zip(before.by_label, after.by_label, slope_L.tolist(), offset_L.tolist(), strict=True)
    for old, new, slope, offset in pairs:
        numbers = (decimal(old.nll), decimal(new.nll), decimal(old.ece), decimal(new.ece))
        of_labels.append(
            (old.name, f"{old.labelled:,}", f"{old.positives:,}", decimal(slope), decimal(offset), *numbers)
        )
    lines = align(of_labels, "<>>>>>>>>")
    more = len(lines) - 1 - MOST_LINES
    if more > 0:
        lines = [*lines[: MOST_LINES + 1], f"and {plural(more, 'more label')}: {where_all}"]
    return [*align(rows, "<" * len(head)), "", *lines]


def _shared_curve(calibrator: MultilabelPlatt) -> str:
    """Describe the curve that all labels share, and the spread of those of single labels."""
    return (
        f"The shared curve has the slope {decimal(calibrator.slope)} and the offset {decimal(calibrator.offset)};"
        f" slopes of labels spread by {100 * calibrator.slope_spread:.0f}% around it, offsets by"
        f" {calibrator.offset_spread:.2f}."
    )


def _form(arguments: argparse.Namespace) -> Form:
    """Build the form from the arguments of `trueodds calibrate`."""
    return Form(
        scale="probabilities" if arguments.probabilities else None,
        classes=tuple(name.strip() for name in arguments.classes.split(",") if name.strip()),
        labels=arguments.labels,
    )


def _refuse(arguments: argparse.Namespace, options: Mapping[str, str]) -> None:
    """Refuse options of exclusive classes.

    Raises:
        OptionsError: One is given.
    """
    for option, name in options.items():
        if getattr(arguments, name) not in (None, "", False, []):
            raise OptionsError(f"{option} is given beside --multi-label, whose labels are not classes; leave out one")
    if arguments.label != LABEL:
        raise OptionsError(
            f"--label {arguments.label} is given beside --multi-label, which reads the columns y_NAME; leave it"
            " out, and choose labels with --classes"
        )
