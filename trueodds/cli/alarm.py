"""Read the sums of days that an alarm has not read yet, and say whether the calibration error exceeds the tolerance.

The sums are files that `trueodds sums` wrote. Each day is one bet, whose stake is fixed before the day is read. So the
alarm may be looked at every day, for ever: at most a share --alpha of well calibrated versions ever alarm. The state is
kept in a file. A repeated call changes nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trueodds.cli import Subparsers
from trueodds.processes.choices import TOLERANCE

EXAMPLES = (
    "alarm sums/*.parquet --state alarm.json",
    "alarm sums/*.parquet --state alarm.json --tolerance 0.05 --alpha 0.01",
)


def add_parser(commands: Subparsers) -> None:
    epilog = "\n".join(["examples:", *(f"  trueodds {line}" for line in EXAMPLES)])
    parser = commands.add_parser("alarm", description=__doc__, epilog=epilog, intermix=True)
    words = "files of sums, or a pattern of them in quotes"
    parser.add_argument("sums", type=Path, nargs="+", metavar="SUMS", help=words)
    words = "file of the alarm's state; it is created if it does not exist"
    parser.add_argument("--state", type=Path, metavar="FILE", required=True, help=words)
    words = f"largest acceptable calibration error (ECE) (default: that of the state; {TOLERANCE:g} for a new one)"
    parser.add_argument("--tolerance", type=float, metavar="ECE", help=words)
    words = "share of calibrated versions that ever alarm (default: that of the state; 0.05 for a new one)"
    parser.add_argument("--alpha", type=float, help=words)


def run(arguments: argparse.Namespace) -> int:
    """Read the sums, write the state and print the evidence."""
    from trueodds.files import FileError
    from trueodds.reports.table.alarm_file import read_alarm, write_alarm
    from trueodds.reports.table.stored_sums import paths_of_sums, problem_of_sums, read_partition

    paths = paths_of_sums(arguments.sums)
    if not paths:
        problem = problem_of_sums(arguments.sums)
        raise FileError(f"{problem}; allowed are files of sums: make them with `trueodds sums`, and name only those")
    before = read_alarm(arguments.state, arguments.tolerance, arguments.alpha)
    state, notes = before.take([read_partition(path) for path in paths])
    if state != before or not arguments.state.exists():
        write_alarm(arguments.state, state)
    print("\n".join([*state.readings(), *notes]))
    return 0
