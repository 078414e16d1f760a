"""Chooses the model for calls that name no model. Without arguments, prints the current choice."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("default", "default digits", "default --rollback")
    parser = commands.add_parser("default", description=__doc__, epilog=epilog)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("model", nargs="?")
    choice.add_argument("--rollback", action="store_true", help="choose the previous model again")
    common.add_models(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.rollback:
        arguments.models.roll_back_default(why=arguments.why)
    elif arguments.model:
        arguments.models.set_default(arguments.model, why=arguments.why)
    version = arguments.models.default()
    print(f"{version.parent.name}/{version.name} serves calls that name no model")
    return 0
