"""Downloads published predictions with known outcomes, to try calibrators, reports and alarms on real numbers.

records: probabilities of three real nets on 10,000 test images each. forecasts: 35,000 dated forecasts of games. Each
file has a fixed address and a checksum. Without a network the files are read from <TRUEODDS_DATA>/records/ or
<TRUEODDS_DATA>/forecasts/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trueodds.cli import Subparsers

NAMES = ("records", "forecasts")


def add_parser(commands: Subparsers) -> None:
    epilog = "examples:\n  trueodds data records\n  trueodds data forecasts --out games"
    parser = commands.add_parser("data", description=__doc__, epilog=epilog)
    parser.add_argument("collection", choices=NAMES, help="the published files")
    words = "folder of the files (default: downloads/<collection>/; TRUEODDS_DOWNLOADS names another downloads/)"
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=words)


def run(arguments: argparse.Namespace) -> int:
    from pipeline.published_data import collections

    name = arguments.collection
    for path in collections.find(name, arguments.out):
        print(path)
    collection = collections.COLLECTIONS[name]
    print(f"{collection.about}.\nLicence: {collection.licence}.")
    return 0
