"""Arguments of the commands that read tables of answers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trueodds.errors import UserError
from trueodds.processes.choices import LABEL, TABLES
from trueodds.sums.resolution_option import add_resolution, resolution_of

if TYPE_CHECKING:
    from trueodds.metrics import Costs
    from trueodds.reports.table.reading import Form
    from trueodds.sums.bins import Binning


class OptionsError(UserError, ValueError):
    """An option has a value that cannot be used."""


def add_form(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the arguments for the file of answers (or `several` files) and its form."""
    labels = "an .npy with the labels of an .npy of probabilities"
    classes = (
        "names of the classes, separated by commas: the columns of a table that are classes, in the order of labels"
    )
    classes += " that are numbers (--classes=-1,1 if a name begins with a minus)"
    if several:
        parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help=f"two or more; each {TABLES}")
        labels = "an .npy with the labels of the rows of .npy files"
        classes = "names of the classes, separated by commas, as in `trueodds report`"
    else:
        parser.add_argument("answers", type=Path, help=TABLES)
    parser.add_argument("--labels", type=Path, metavar="FILE", help=labels)
    words = f"the column of a table that holds the labels (default: {LABEL})"
    parser.add_argument("--label", default=LABEL, metavar="COLUMN", help=words)
    scale = parser.add_mutually_exclusive_group()
    words = "the numbers of the classes are {}, if the file does not say so"
    scale.add_argument("--probabilities", action="store_true", help=words.format("probabilities") + " (the default)")
    scale.add_argument("--logits", action="store_true", help=words.format("logits"))
    parser.add_argument("--classes", default="", metavar="NAMES", help=classes)
    add_resolution(parser)
    words = "the number of the first class where labels are numbers (default: 0 if there is a 0; otherwise required)"
    parser.add_argument("--first-label", type=int, choices=(0, 1), help=words)


def form_of(arguments: argparse.Namespace) -> Form:
    """Build the form from the arguments of `add_form` and --positive."""
    from trueodds.reports.table.reading import Form

    return Form(
        label=arguments.label,
        scale="logits" if arguments.logits else "probabilities" if arguments.probabilities else None,
        classes=tuple(name.strip() for name in arguments.classes.split(",") if name.strip()),
        first_label=arguments.first_label,
        labels=arguments.labels,
        positive=arguments.positive,
        resolution=resolution_of(arguments),
    )


def check_bins_and_level(arguments: argparse.Namespace, binning: Binning = "width") -> None:
    """Check --bins and --level.

    Raises:
        OptionsError: A value is not allowed.
    """
    from trueodds.sums.bins import check_bins
    from trueodds.sums.inputs import check_level

    try:
        check_bins(arguments.bins, binning)
        check_level(arguments.level)
    except ValueError as error:
        raise OptionsError(f"--{error}") from None


def costs_of(arguments: argparse.Namespace) -> Costs | None:
    """Parse --costs.

    Raises:
        OptionsError: There is no positive class, or `Costs.parse` refuses the text.
    """
    from trueodds.metrics import Costs

    if arguments.costs and not arguments.positive:
        raise OptionsError(f"--costs {arguments.costs} without --positive: name the class that alerts are for")
    try:
        return Costs.parse(arguments.costs) if arguments.costs else None
    except ValueError as error:
        raise OptionsError(f"--costs: {error}") from None
