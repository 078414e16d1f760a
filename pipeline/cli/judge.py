"""Compares the shadow of a model with what answers, by labels that came since it was published.

It prints the gain in log loss with an interval that is valid however often you look, and the verdict: better, worse or
undecided. It promotes and withdraws nothing: a person does, with `promote` or `shadow`. The exit code is 0 where the
evidence was read, whatever it says, and 1 where it could not be read.
"""

from __future__ import annotations

import argparse

from pipeline.cli import common
from pipeline.cli.recalibrate import add_judgement, outcome_text, request_of
from pipeline.recalibrate import judge
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("judge", "judge --model digits --wait 600", "judge --margin 0.002")
    parser = commands.add_parser("judge", description=__doc__, epilog=epilog)
    add_judgement(parser)
    whose = "of a model that another server serves"
    parser.add_argument("--version", help=f"{whose}: the one that answered (default: the newest)")
    parser.add_argument("--shadow", metavar="VERSION", help=f"{whose}: the one beside it (default: the newest)")


def run(arguments: argparse.Namespace) -> int:
    print(outcome_text(judge(request_of(arguments, version=arguments.version, shadow=arguments.shadow))))
    return 0
