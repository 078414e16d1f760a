"""Form of a table of answers: facts that its file does not state, and the arguments for them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trueodds.errors import UserError
from trueodds.metrics import Costs
from trueodds.sums.resolution_option import add_resolution, resolution_of
from trueodds.sums.rounding import Resolution

Scale = Literal["probabilities", "logits"]
LABEL = "label"
FORMS = (
    "an .npz with probabilities (or logits) and labels, or with confidence and correct; a .csv or .parquet table with a"
    " column for each class, with its name, and one for the labels, or with confidence, predicted and label; or an .npy"
    " of probabilities together with --labels"
)
"""Allowed forms of a table, for messages."""


class OptionsError(UserError, ValueError):
    """An option has a value that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Facts about a table that its file does not state."""

    label: str = LABEL
    """Column of the labels."""
    scale: Scale | None = None
    """Kind of the classes' numbers. None: as the array's name says, else probabilities."""
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers. For a table, the columns that are classes."""
    positive: str | None = None
    """Class whose probability a single column holds, if the column's name is not a class."""
    first_label: int | None = None
    """Number of the first class, 0 or 1, if labels are numbers. None: the labels show it."""
    labels: Path | None = None
    """File of the labels that belong to an array."""
    resolution: Resolution | None = None
    """Resolution of the probabilities. None: as the rows show it."""


def add_form(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the arguments for the file of answers (or `several` files) and its form."""
    labels = "an .npy with the labels of an .npy of probabilities"
    classes = (
        "names of the classes, separated by commas: the columns of a table that are classes, in the order of labels"
    )
    classes += " that are numbers (--classes=-1,1 if a name begins with a minus)"
    if several:
        parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help=f"two or more; each {FORMS}")
        labels = "an .npy with the labels of the rows of .npy files"
        classes = "names of the classes, separated by commas, as in `trueodds report`"
    else:
        parser.add_argument("answers", type=Path, help=FORMS)
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
    return Form(
        label=arguments.label,
        scale="logits" if arguments.logits else "probabilities" if arguments.probabilities else None,
        classes=tuple(name.strip() for name in arguments.classes.split(",") if name.strip()),
        first_label=arguments.first_label,
        labels=arguments.labels,
        positive=arguments.positive,
        resolution=resolution_of(arguments),
    )


def costs_of(arguments: argparse.Namespace) -> Costs | None:
    """Parse --costs.

    Raises:
        OptionsError: There is no positive class, or `Costs.parse` refuses the text.
    """
    if arguments.costs and not arguments.positive:
        raise OptionsError(f"--costs {arguments.costs} without --positive: name the class that alerts are for")
    try:
        return Costs.parse(arguments.costs) if arguments.costs else None
    except ValueError as error:
        raise OptionsError(f"--costs: {error}") from None
