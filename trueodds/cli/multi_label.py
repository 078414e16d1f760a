"""Reports and fits of independent yes/no labels, for the commands with --multi-label."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trueodds.cli.tables import OptionsError, form_of

if TYPE_CHECKING:
    from trueodds.reports.options import ReportOptions

_OF_CLASSES = {
    "--positive": "positive",
    "--ordered": "ordered",
    "--first-label": "first_label",
    "--costs": "costs",
    "--fit-rows": "fit_rows",
    "--ratio-tolerance": "ratio_tolerance",
    "--by": "by",
    "--trend": "trend",
    "--engine": "engine",
    "--id": "id",
    "SUMS": "more",
}
"""Options of exclusive classes, and their places in the arguments."""


def report(arguments: argparse.Namespace, options: ReportOptions) -> int:
    """Read the table of `trueodds report --multi-label`, print its report and write the files."""
    from trueodds.files import write_json, write_text
    from trueodds.processes.choices import LABEL
    from trueodds.reports.table.multilabel import report_of_rows
    from trueodds.reports.table.multilabel_reading import read_labels

    for option, name in _OF_CLASSES.items():
        if getattr(arguments, name) not in (None, "", False, []):
            raise OptionsError(f"{option} is given beside --multi-label, whose labels are not classes; leave out one")
    if arguments.label != LABEL:
        raise OptionsError(
            f"--label {arguments.label} is given beside --multi-label, which reads the columns y_NAME; leave it"
            " out, and choose labels with --classes"
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
