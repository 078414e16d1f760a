"""Arguments that say how a table of answers is read; every command on such a table has them."""

from __future__ import annotations

import argparse
from pathlib import Path

from trueodds.errors import UserError
from trueodds.metrics import Costs
from trueodds.reports.table import reading


class OptionsError(UserError, ValueError):
    """An option whose value cannot be used."""


def add_form(parser: argparse.ArgumentParser) -> None:
    """Add the file of answers and what it does not say of itself."""
    parser.add_argument("answers", type=Path, help=reading.FORMS)
    parser.add_argument("--labels", type=Path, metavar="FILE", help="the labels of an .npy of probabilities: an .npy")
    words = f"the column of a table that holds the labels (default: {reading.LABEL})"
    parser.add_argument("--label", default=reading.LABEL, metavar="COLUMN", help=words)
    scale = parser.add_mutually_exclusive_group()
    words = "the numbers of the classes are {}, where the file does not say so"
    scale.add_argument("--probabilities", action="store_true", help=words.format("probabilities") + " (the default)")
    scale.add_argument("--logits", action="store_true", help=words.format("logits"))
    words = (
        "names of the classes, with commas: the columns of a table that are classes, in the order of labels that are"
    )
    words += " numbers (--classes=-1,1 where a name begins with a minus)"
    parser.add_argument("--classes", default="", metavar="NAMES", help=words)
    words = "the number of the first class where labels are numbers (default: 0 if there is a 0; else it must be said)"
    parser.add_argument("--first-label", type=int, choices=(0, 1), help=words)


def form_of(arguments: argparse.Namespace) -> reading.Form:
    """Collect what `add_form` and an option --positive were given."""
    return reading.Form(
        label=arguments.label,
        scale="logits" if arguments.logits else "probabilities" if arguments.probabilities else None,
        classes=tuple(name.strip() for name in arguments.classes.split(",") if name.strip()),
        first_label=arguments.first_label,
        labels=arguments.labels,
        positive=arguments.positive,
    )


def costs_of(arguments: argparse.Namespace) -> Costs | None:
    """Read --costs.

    Raises:
        OptionsError: costs without a positive class, or words that `Costs.parse` refuses.
    """
    if arguments.costs and not arguments.positive:
        raise OptionsError(f"--costs {arguments.costs} without --positive: name the class that an alert is for")
    try:
        return Costs.parse(arguments.costs) if arguments.costs else None
    except ValueError as error:
        raise OptionsError(f"--costs: {error}") from None
