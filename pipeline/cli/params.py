"""Prints every parameter with its value, as a stage would read it."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("params", "params method=focal --params other.yaml")
    common.add_parameters(commands.add_parser("params", description=__doc__, epilog=epilog, intermix=True))


def run(arguments: argparse.Namespace) -> int:
    from pipeline import config, parameters

    params = config.load(arguments.params, parameters.parse_overrides(arguments.parameters))
    for name, value in params.leaves().items():
        print(f"{name} = {value!r}")
    return 0
