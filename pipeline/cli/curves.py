"""Diagrams in artifacts/curves: the last training run, and the gradient under focal loss."""

from __future__ import annotations

import argparse

from pipeline import stages
from pipeline.cli import common
from trueodds.cli import Subparsers

DRAWINGS = {
    "curves": (
        stages.draw_curves,
        "Draws every epoch of artifacts/model, and in detail the epochs that training.curves lists.",
    ),
    "gamma-curve": (
        stages.draw_gamma_curve,
        "Draws g(p, gamma), the factor by which focal loss changes the gradient. Needs no training run.",
    ),
}


def add_parser(commands: Subparsers) -> None:
    for name, (draw, about) in DRAWINGS.items():
        parser = commands.add_parser(name, description=about, epilog=common.examples(name))
        parser.set_defaults(draw=draw)


def run(arguments: argparse.Namespace) -> int:
    common.log_to_stderr()
    print(*arguments.draw(), sep="\n")
    return 0
