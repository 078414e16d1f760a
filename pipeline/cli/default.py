"""Chooses the model that answers calls which name none; without a model and --rollback, says which one does."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.bundle import model_folder, publishing
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("default", "default digits", "default --rollback")
    parser = commands.add_parser("default", description=__doc__, epilog=epilog)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("model", nargs="?")
    choice.add_argument("--rollback", action="store_true", help="the model that did before")
    common.add_models(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.rollback:
        publishing.rollback_default(arguments.models, why=arguments.why)
    elif arguments.model:
        publishing.set_default(arguments.models, arguments.model, why=arguments.why)
    version = model_folder.find_default(arguments.models)
    print(f"{version.parent.name}/{version.name} answers calls that name no model")
    return 0
