"""Judges what is beside a model's served version, a calibrator, a net or both, by labels that came since.

It prints the gain in log loss with an interval that is valid however often you look, and the verdict: better, worse or
undecided. A calibrator is promoted at "better" and withdrawn at "worse"; about a net a person decides (--promote,
--promote-net). The exit code is 0 where the evidence was read, whatever it says, and 1 where it could not be read.
"""

from __future__ import annotations

import argparse

from pipeline.cli import common
from pipeline.cli.recalibrate import add_judgement, outcome_text, request_of
from pipeline.recalibrate import judge
from trueodds.bundle import SLOTS
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    net = "judge --slot shadow --promote-net when-better"
    epilog = common.examples("judge", "judge --model digits --wait 600", net, "judge --margin 0.002")
    parser = commands.add_parser("judge", description=__doc__, epilog=epilog)
    add_judgement(parser)
    slot = "only the shadow, a net, or only the recalibrated version, a calibrator (default: both)"
    parser.add_argument("--slot", choices=SLOTS, help=slot)
    whose = "of a model that another server serves"
    parser.add_argument("--version", help=f"{whose}: the one that answered (default: the newest)")
    parser.add_argument("--shadow", metavar="VERSION", help=f"{whose}: the one beside it (default: the newest)")


def run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("version", "shadow", "slot")}
    print(outcome_text(judge(request_of(arguments, **given))))
    return 0
