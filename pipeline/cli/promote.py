"""Lets a published version answer for its model."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.bundle import SHADOW, Bundle
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples('promote digits 3f2a9c01b7de --why "fewer errors"')
    parser = commands.add_parser("promote", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    parser.add_argument("version")
    common.add_models(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    models, model, version = arguments.models, arguments.model, arguments.version
    Bundle.load(models.version_folder(model, version))
    models.promote(model, version, why=arguments.why)
    print(models.standing(model, version))
    if shadow := models.version_of(model, SHADOW):
        print(f"{model}/{shadow} stays the shadow, and is compared with {version} from now on")
    return 0
