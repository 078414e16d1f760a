"""Judges the candidates beside a model's served version, a calibrator and a net, on labels that came since.

It prints the gain in log loss with an interval that is valid however often you look, and the verdict: better, worse or
undecided. A calibrator is promoted at "better" and withdrawn at "worse". A net is left for a person to decide. Both can
be changed by --promote and --promote-net. The exit status is 0 for any verdict, and 1 if the evidence cannot be read.
"""

from __future__ import annotations

import argparse

from pipeline.cli import common
from pipeline.cli.recalibrate import add_judgement, outcome_text, request_of
from trueodds.cli import Subparsers
from trueodds.processes.choices import SLOTS


def add_parser(commands: Subparsers) -> None:
    net = "judge --slot shadow --promote-net when-better"
    epilog = common.examples("judge", "judge --model digits --wait 600", net, "judge --margin 0.002")
    parser = commands.add_parser("judge", description=__doc__, epilog=epilog)
    add_judgement(parser)
    slot = "the slot to judge: the shadow (a net) or the recalibrated version (a calibrator) (default: both)"
    parser.add_argument("--slot", choices=SLOTS, help=slot)
    whose = "for a model that another server serves"
    parser.add_argument("--version", help=f"{whose}: the version that served (default: the newest)")
    parser.add_argument("--shadow", metavar="VERSION", help=f"{whose}: the candidate (default: the newest)")


def run(arguments: argparse.Namespace) -> int:
    from pipeline.recalibrate import judge

    given = {name: getattr(arguments, name) for name in ("version", "shadow", "slot")}
    print(outcome_text(judge(request_of(arguments, **given))))
    return 0
