"""Lets a version of a model be scored on the same inputs as the one that answers, without answering."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("shadow digits 3f2a9c01b7de", f"shadow digits {common.NONE}")
    parser = commands.add_parser("shadow", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    parser.add_argument("version", help=f"{common.NONE}: no version")
    common.add_models(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    models, model, version = arguments.models, arguments.model, arguments.version
    if version == common.NONE:
        models.withdraw(model, why=arguments.why)
        print(f"{model} has no shadow now")
    else:
        models.shadow(model, version, why=arguments.why)
        print(f"{model}/{version} is the shadow now")
    return 0
