"""Make a key and its SHA-256 hash. Callers get the key; the service gets only the hash."""

from __future__ import annotations

import argparse
import sys

from service.http import hashed_keys
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    commands.add_parser("key", description=__doc__, epilog="examples:\n  trueodds key")


def run(arguments: argparse.Namespace) -> int:
    key, hashed = hashed_keys.make()
    print(f"key     {key}", f"sha256  {hashed}", sep="\n", flush=True)
    print("Give the key to the callers. Give only the hash to the service, for example:", file=sys.stderr)
    print(f"  TRUEODDS_PREDICT_KEY_HASH={hashed} trueodds serve", file=sys.stderr)
    return 0
