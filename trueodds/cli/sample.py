"""Draw the answers that people should label next, and write them as a CSV file.

Every answer without a label gets a propensity: its probability of being drawn. None is 0, so that figures that are
weighted by the propensities are about all answers. Fill in the labels in the file, and give it to `trueodds report`,
which weights them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from trueodds.cli import Subparsers
from trueodds.cli.arguments import number, whole_number
from trueodds.cli.tables import OptionsError, add_form, form_of
from trueodds.errors import UserError
from trueodds.processes.choices import LABEL_FLOOR, LABEL_GOALS, MOST_NAMED, SAMPLING_METHODS

EXAMPLES = (
    "sample answers.parquet --budget 200 --out to_label.csv",
    "sample answers.csv --budget 100 --goal threshold --threshold 0.93 --out to_label.csv",
    "sample answers.csv --budget 100 --goal group --tag night --out to_label.csv",
)
MOST = 10_000_000
"""Largest budget."""


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("sample", description=__doc__, epilog=epilog, intermix=True)
    add_form(parser, labels="an .npy with the labels of an .npy of probabilities, if some are known")
    words = "the positive class of two; a single column of probabilities belongs to this class"
    parser.add_argument("--positive", metavar="CLASS", help=words)
    budget = whole_number(1, MOST, f"a whole number from 1 to {MOST:,}")
    words = "number of answers to draw; with --method poisson, the expected number"
    parser.add_argument("--budget", type=budget, required=True, metavar="LABELS", help=words)
    add_design(parser)
    words = "systematic: exactly the budget, spread over confidence; poisson: each answer on its own, for alarms"
    words += " (default: systematic)"
    parser.add_argument("--method", choices=SAMPLING_METHODS, default="systematic", help=words)
    seed = whole_number(0, 2**63 - 1, "a whole number from 0 on")
    words = "seed of the draw, so that it can be repeated (default: another one each time)"
    parser.add_argument("--seed", type=seed, metavar="SEED", help=words)
    words = "write the drawn answers as CSV, with their propensities"
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=words)


def add_design(parser: argparse.ArgumentParser) -> None:
    """Add the options for the propensities."""
    goals = "; ".join(f"{name}: {words}" for name, words in LABEL_GOALS.items())
    words = f"what the sample makes precise. {goals} (default: ece)"
    parser.add_argument("--goal", choices=[*LABEL_GOALS], default="ece", help=words)
    words = "with --goal threshold: the confidence from which on answers act alone"
    parser.add_argument("--threshold", type=float, metavar="CONFIDENCE", help=words)
    words = "with --goal group: label this tag, and the others only by the floor (default: tags that may be the worst)"
    parser.add_argument("--tag", metavar="TAG", help=words)
    words = "smallest propensity, as a share of that in a plain sample of the same size: a number above 0 and at most 1"
    words += f" (default: {LABEL_FLOOR:g})"
    floor = number(1e-6, 1, "a number from 1e-6 to 1")
    parser.add_argument("--floor", type=floor, default=LABEL_FLOOR, metavar="SHARE", help=words)


def suspects_line(suspects: Sequence[tuple[str | None, float]]) -> str:
    """Format the tags that are most likely the worst as a line; "" without any."""
    if not suspects:
        return ""
    named = [f"{tag or '(no tag)'} ({chance:.0%})" for tag, chance in suspects[:MOST_NAMED]]
    return f"By the labels so far, the worst tag is most likely {', '.join(named)}.\n"


def run(arguments: argparse.Namespace) -> int:
    """Read the table, draw the sample and write the file."""
    from dataclasses import replace

    from trueodds.inputs.table import check_no_labels
    from trueodds.reports.table import reading
    from trueodds.reports.table.label_sample import sample_of, write_sample
    from trueodds.texts import plural

    form = replace(form_of(arguments), needs_labels=False)
    check_no_labels(arguments.out, (form.label, "correct"))
    answers = reading.read(arguments.answers, form)
    try:
        sample = sample_of(
            answers,
            arguments.budget,
            goal=arguments.goal,
            threshold=arguments.threshold,
            tag=arguments.tag,
            floor=arguments.floor,
            method=arguments.method,
            seed=arguments.seed,
        )
    except UserError:
        raise
    except ValueError as error:
        raise OptionsError(f"{arguments.answers}: {error}") from None
    write_sample(arguments.out, arguments.answers, answers, sample, form.label)
    least, most = (sample.propensity_I.min(), sample.propensity_I.max()) if len(sample.row_I) else (0.0, 0.0)
    print(
        f"{arguments.out}: {len(sample.row_I):,} of {plural(sample.answers, 'answer')} without a label, drawn for the"
        f" goal {arguments.goal} with propensities from {least:.3g} to {most:.3g}.\n"
        f"{suspects_line([(one.group, one.chance) for one in sample.suspects])}"
        + "".join(f"{note}\n" for note in answers.notes)
        + f"Fill in the labels of all of them, then run: trueodds report {arguments.out}"
    )
    return 0
