"""Arguments of the commands that read tables of answers."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trueodds.cli.arguments import add_resolution, resolution_of
from trueodds.errors import UserError
from trueodds.processes.choices import LABEL, TABLES
from trueodds.texts import hide_password, short

if TYPE_CHECKING:
    from trueodds.calibrators.conformal import SetRule
    from trueodds.metrics import Costs
    from trueodds.processes.choices import Binning, TrendUnit
    from trueodds.reports.table.reading import Form
    from trueodds.reports.table.summed import TableSums

NO_ROWS = "Which answers may act alone is not measured: this needs the rows, so read a file without --engine."
"""Note of reports that are made from sums."""


class OptionsError(UserError, ValueError):
    """An option has a value that cannot be used."""


def file_path(text: str) -> Path:
    """Return the path of a file of this machine.

    Raises:
        argparse.ArgumentTypeError: It is a URL.
    """
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{hide_password(text)} is a URL; allowed is the path of a file: copy it to this machine first"
        )
    return Path(text)


def path_or_url(text: str) -> Path | str:
    """Return the path of a file, or a URL as it is: a path would lose one of its slashes."""
    return text if "://" in text else Path(text)


def add_form(
    parser: argparse.ArgumentParser,
    *,
    several: bool = False,
    answers: str = TABLES,
    labels: str = "",
    urls: bool = False,
    optional: bool = False,
) -> None:
    """Add the arguments for the file of answers (or `several` files) and its form.

    `answers` and `labels` are the help texts of these arguments. `urls` allows URLs, which an engine reads. The file
    may be left out if it is `optional`.
    """
    kind = path_or_url if urls else file_path
    labels = labels or "an .npy with the labels of an .npy of probabilities; with --engine, a table of ids and labels"
    classes = (
        "names of the classes, separated by commas: the columns of a table that are classes, in the order of labels"
    )
    classes += " that are numbers (--classes=-1,1 if a name begins with a minus)"
    if several:
        parser.add_argument("tables", type=file_path, nargs="+", metavar="TABLE", help=f"two or more; each {TABLES}")
        labels = "an .npy with the labels of the rows of .npy files"
        classes = "names of the classes, separated by commas, as in `trueodds report`"
    else:
        parser.add_argument("answers", type=kind, nargs="?" if optional else None, help=answers)
    parser.add_argument("--labels", type=kind, metavar="FILE", help=labels)
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


def add_engine(parser: argparse.ArgumentParser, *, default: str = "", databases: bool = False) -> None:
    """Add --engine and --id, for tables that do not fit into memory. `databases` mentions addresses."""
    words = "duckdb makes the sums (extra `warehouse`): of a .parquet file, of a pattern of such files in quotes, or of"
    words += " such files in a bucket, s3://bucket/answers/*.parquet; it needs little memory for any number of rows"
    if databases:
        words += "; or the address of a database with the table (extra `engines`), such as postgres://user@host/logs"
    parser.add_argument("--engine", metavar="ENGINE", default=default, help=words)
    words = "with --engine and --labels: the column that both tables share (default: id)"
    parser.add_argument("--id", metavar="COLUMN", help=words)


def sums_of_engine(
    arguments: argparse.Namespace,
    *,
    trend: TrendUnit | None = None,
) -> TableSums:
    """Let the engine of --engine make the sums of a table, with the labels of another one if --labels names it."""
    from trueodds.errors import MissingExtraError

    try:
        from trueodds.reports.warehouse.label_join import open_with_labels
        from trueodds.reports.warehouse.summing import sums_of_source
    except ModuleNotFoundError as error:
        raise MissingExtraError("--engine", (error.name or "ibis").partition(".")[0], "warehouse") from None
    form = form_of(arguments)
    labels = None if arguments.labels is None else str(arguments.labels)
    source, notes = open_with_labels(str(arguments.answers), arguments.engine, labels, form.label, arguments.id or "id")
    sums = sums_of_source(source, form, trend=trend)
    return replace(sums, notes=(*sums.notes, *notes, NO_ROWS))


def add_history(parser: argparse.ArgumentParser) -> None:
    """Add --store, --archive, --model and --version, which take the place of a file of answers."""
    words = "in place of a file: the store of a service, a SQLite file or a postgresql:// URL; with --archive, its"
    words += " answers and those in the archive are read as one table (extras `warehouse` and `serve`)"
    parser.add_argument("--store", metavar="STORE", help=words)
    words = "the archive of a service, a folder or a URL such as s3://bucket/prefix: old answers, and labels that came"
    words += " after their answers had left the store"
    parser.add_argument("--archive", metavar="PLACE", help=words)
    words = "with --store or --archive: the model (default: the only one that is there)"
    parser.add_argument("--model", metavar="NAME", help=words)
    words = "with --store or --archive: only answers of this version (default: all versions)"
    parser.add_argument("--version", metavar="VERSION", help=words)


def sums_of_history(arguments: argparse.Namespace, *, trend: TrendUnit | None = None) -> TableSums:
    """Make the sums of the answers in --store and --archive.

    Raises:
        OptionsError: An option is for another kind of table.
    """
    given = {
        str(arguments.answers): arguments.answers,
        "--labels": arguments.labels,
        "--label": arguments.label != LABEL,
        "--id": arguments.id,
        "--logits": arguments.logits,
        "--first-label": arguments.first_label is not None,
        "--engine": arguments.engine not in ("", "duckdb"),
    }
    for option, value in given.items():
        if value:
            raise OptionsError(
                f"{hide_password(option)} is given beside --store or --archive, whose columns are known; leave it out"
            )
    from trueodds.reports.warehouse.history import open_history

    model, version = arguments.model, arguments.version
    with open_history(arguments.store, arguments.archive, model=model, version=version, form=form_of(arguments)) as one:
        sums = one.sums(trend)
    return replace(sums, notes=(*sums.notes, NO_ROWS))


def form_of(arguments: argparse.Namespace) -> Form:
    """Build the form from the arguments of `add_form` and --positive."""
    from trueodds.reports.table.reading import Form

    return Form(
        label=arguments.label,
        scale="logits" if arguments.logits else "probabilities" if arguments.probabilities else None,
        classes=tuple(name.strip() for name in arguments.classes.split(",") if name.strip()),
        first_label=arguments.first_label,
        labels=arguments.labels if isinstance(arguments.labels, Path) else None,
        positive=arguments.positive,
        resolution=resolution_of(arguments),
    )


def rule_of_sets(arguments: argparse.Namespace) -> SetRule | None:
    """Return the rule of the sets of --set-level and --set-rows; None without them.

    Raises:
        OptionsError: The level is not in (0, 1), or the number of rows is not positive or given without a level.
    """
    level, rows = arguments.set_level, arguments.set_rows
    if rows is not None and level is None:
        raise OptionsError(
            f"--set-rows {short(rows)} without --set-level: give the level of the sets, such as --set-level 0.9"
        )
    if level is None:
        return None
    if not 0 < level < 1:
        raise OptionsError(f"--set-level is {level!r}; allowed is (0, 1), such as 0.9")
    from trueodds.calibrators.conformal import MOST_ROWS, SetRule

    if rows is not None and not 1 <= rows <= MOST_ROWS:
        raise OptionsError(f"--set-rows is {short(rows)}; allowed are whole numbers from 1 to 2^53 - 1")

    return SetRule.of_level(level, rows or 0)


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
