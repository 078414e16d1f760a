"""Lets a version of a model be scored on the same inputs as the one that answers, without answering."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.bundle import publishing
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("shadow digits 3f2a9c01b7de", f"shadow digits {common.NONE}")
    parser = commands.add_parser("shadow", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    parser.add_argument("version", help=f"{common.NONE}: no version")
    common.add_models(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    model, version = arguments.model, None if arguments.version == common.NONE else arguments.version
    publishing.set_shadow(arguments.models, model, version, why=arguments.why)
    print(f"{model} has no shadow now" if version is None else f"{model}/{version} is the shadow now")
    return 0
