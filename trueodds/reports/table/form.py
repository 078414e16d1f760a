"""The form of a table of answers: what its file does not say of itself, and the arguments that say it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trueodds.errors import UserError
from trueodds.metrics import Costs

Scale = Literal["probabilities", "logits"]
LABEL = "label"
FORMS = (
    "an .npz with probabilities (or logits) and labels, or with confidence and correct; a .csv or .parquet table with a"
    " column for each class, named as it, and one of the labels, or with confidence, predicted and label; or an .npy of"
    " probabilities beside --labels"
)


class OptionsError(UserError, ValueError):
    """An option whose value cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a file does not say of itself."""

    label: str = LABEL
    """The column of the labels."""
    scale: Scale | None = None
    """What the numbers of the classes are; None: as an array is named, else probabilities."""
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers; of a table, its columns that are classes."""
    positive: str | None = None
    """The class whose probability a single column is that is not named as one."""
    first_label: int | None = None
    """The number of the first class, 0 or 1, where labels are numbers; None: as they say themselves."""
    labels: Path | None = None
    """The file of the labels beside an array."""


def add_form(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the file of answers, or `several` of them, and what a file does not say of itself."""
    labels = "the labels of an .npy of probabilities: an .npy"
    classes = "names of the classes, with commas: the columns of a table that are classes, in the order of labels that"
    classes += " are numbers (--classes=-1,1 where a name begins with a minus)"
    if several:
        parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help=f"two or more; each {FORMS}")
        labels = "the labels of the rows of .npy files: an .npy"
        classes = "names of the classes, with commas, as in `trueodds report`"
    else:
        parser.add_argument("answers", type=Path, help=FORMS)
    parser.add_argument("--labels", type=Path, metavar="FILE", help=labels)
    words = f"the column of a table that holds the labels (default: {LABEL})"
    parser.add_argument("--label", default=LABEL, metavar="COLUMN", help=words)
    scale = parser.add_mutually_exclusive_group()
    words = "the numbers of the classes are {}, where the file does not say so"
    scale.add_argument("--probabilities", action="store_true", help=words.format("probabilities") + " (the default)")
    scale.add_argument("--logits", action="store_true", help=words.format("logits"))
    parser.add_argument("--classes", default="", metavar="NAMES", help=classes)
    words = "the number of the first class where labels are numbers (default: 0 if there is a 0; else it must be said)"
    parser.add_argument("--first-label", type=int, choices=(0, 1), help=words)


def form_of(arguments: argparse.Namespace) -> Form:
    """Collect what `add_form` and an option --positive were given."""
    return Form(
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
