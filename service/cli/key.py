"""Makes a key: callers get the key, the service is told its SHA-256 only."""

from __future__ import annotations

import argparse
import sys

from service.http import keys
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    commands.add_parser("key", description=__doc__, epilog="examples:\n  trueodds key")


def run(arguments: argparse.Namespace) -> int:
    key, hashed = keys.make()
    print(f"key     {key}", f"sha256  {hashed}", sep="\n", flush=True)
    print("Give the key to those who call; tell the service the sha256 only, for example", file=sys.stderr)
    print(f"  TRUEODDS_PREDICT_KEY={hashed} trueodds serve", file=sys.stderr)
    return 0
