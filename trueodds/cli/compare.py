"""Compare models by their tables of answers on the same labelled rows.

If every table has a column `id` (.npz: `ids`), it matches the rows; otherwise their order does. Each table is compared
with the first by the paired differences of error, NLL, Brier score and squared calibration error. The plug-in ECE,
AdaECE, MCE and class-wise ECE are shown with their noise floors. Their differences are not tested.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trueodds.cli import Subparsers
from trueodds.cli.tables import OptionsError, add_form, check_bins_and_level, form_of, rule_of_sets
from trueodds.texts import LONG, plural, short

if TYPE_CHECKING:
    from trueodds.calibrators.conformal import SetRule

EXAMPLES = (
    "compare old.csv new.csv",
    "compare old.npz new.npz newer.npz --json compared.json",
    "compare old.csv new.csv --positive malignant",
    "compare old.csv new.csv --set-level 0.9 --set-rows 500,800",
)


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("compare", description=__doc__, epilog=epilog, intermix=True)
    add_form(parser, several=True)
    words = "the class of two whose probability is compared, over all of [0, 1]"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    parser.add_argument("--bins", type=int, default=15, help="bins of confidence: a divisor of 3,000 (default: 15)")
    words = "confidence level of the intervals (default: 0.95)"
    parser.add_argument("--level", type=float, default=0.95, help=words)
    words = "level of the conformal sets in the column set of each table (an .npz: the array sets); their coverage and"
    words += " size are compared too"
    parser.add_argument("--set-level", type=float, metavar="P", help=words)
    words = "with --set-level: number of rows that chose the thresholds of the sets, one for all tables or one for"
    words += " each, separated by commas; a test of each model's coverage allows for it"
    parser.add_argument("--set-rows", metavar="N", help=words)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the tables, print their comparison and write the file."""
    from trueodds.files import write_text
    from trueodds.reports.table import reading
    from trueodds.reports.table.comparison.compared_sets import compare_sets, sets_of_tables
    from trueodds.reports.table.comparison.models import of_nets
    from trueodds.reports.table.comparison.table_rows import nets_of
    from trueodds.reports.table.matching import common_rows, ids_of

    _check(arguments)
    names, form, rules = _names(arguments.tables), form_of(arguments), _rules_of_sets(arguments)
    tables = {
        name: reading.read(path, replace(form, sets=rule))
        for name, path, rule in zip(names, arguments.tables, rules, strict=True)
    }
    ids = {name: ids_of(path) for name, path in zip(names, arguments.tables, strict=True)}
    rows, notes = common_rows(tables, ids)
    nets, more = nets_of(tables, rows, arguments.positive)
    read = [f"{name}: {note}" for name, of in tables.items() for note in filter(None, [*of.notes, of.read_as])]
    of = {name: [net] for name, net in nets.items()}
    comparison = of_nets(of, bins=arguments.bins, level=arguments.level, notes=[*notes, *more, *read])
    if arguments.set_level is not None:
        sets = compare_sets(sets_of_tables(tables, rows), level=arguments.level)
        comparison = replace(comparison, sets=sets)
    print(comparison)
    if arguments.json:
        write_text(arguments.json, json.dumps(comparison.as_dict(), indent=2) + "\n")
        print(f"\nWritten: {arguments.json}")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    check_bins_and_level(arguments)
    if len(arguments.tables) < 2:
        one = arguments.tables[0]
        cure = f"give those of two or more models: trueodds compare {one} new.csv. For one model: trueodds report {one}"
        raise OptionsError(f"{one} is one table; {cure}")
    if len(set(arguments.tables)) < len(arguments.tables):
        twice = next(path for path in arguments.tables if arguments.tables.count(path) > 1)
        raise OptionsError(f"{twice} is given twice; give tables of different models")


def _rules_of_sets(arguments: argparse.Namespace) -> list[SetRule | None]:
    """Return the rule of the sets of each table."""
    tables, text = arguments.tables, arguments.set_rows
    if text is None:
        return [rule_of_sets(arguments)] * len(tables)
    counts = [part.strip() for part in text.split(",")]
    whole = all(part.isascii() and part.isdigit() and len(part) < LONG for part in counts)
    if not whole or len(counts) not in (1, len(tables)):
        given = f"--set-rows is {short(text)}, and there are {plural(len(tables), 'table')}"
        raise OptionsError(f"{given}; allowed is a whole number from 1, or one for each table, such as 500,800")
    rules = [rule_of_sets(argparse.Namespace(set_level=arguments.set_level, set_rows=int(part))) for part in counts]
    return rules * len(tables) if len(rules) == 1 else rules


def _names(paths: list[Path]) -> list[str]:
    """Return the files' names without a suffix, or their paths if two names are equal."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
