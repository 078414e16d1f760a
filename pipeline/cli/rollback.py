"""Lets the version of a model answer that answered before; again, the one before that."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from pipeline.recalibrate.standing import anew_text
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples('rollback digits --why "worse on Mondays"')
    parser = commands.add_parser("rollback", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    common.add_models(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    version = arguments.models.roll_back(arguments.model, why=arguments.why)
    print(f"{arguments.model}/{version} answers again")
    if text := anew_text(arguments.models, arguments.model):
        print(text)
    return 0
