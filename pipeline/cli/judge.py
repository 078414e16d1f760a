"""Judges the shadow of a model by labels that came since it was published: promotes it, withdraws it, or goes on."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from pipeline.cli.recalibrate import add_judgement, outcome_text, request_of
from pipeline.recalibrate import judge
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("judge", "judge --model digits --wait 600")
    add_judgement(commands.add_parser("judge", description=__doc__, epilog=epilog), ("evidence", "never"))


def run(arguments: argparse.Namespace) -> int:
    print(outcome_text(judge(request_of(arguments))))
    return 0
