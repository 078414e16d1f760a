"""Write params.yaml and dvc.yaml into the current folder, for `dvc repro` with the installed package."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline import starter
from trueodds.cli import Subparsers

NEXT = "next: git init && dvc init && dvc repro (without git: dvc init --no-scm && dvc repro)"


def add_parser(commands: Subparsers) -> None:
    commands.add_parser("init", description=__doc__, epilog="examples:\n  trueodds init").set_defaults(work=_init)
    words = f"Write the hashes of the installed code to {starter.CODE}: a stage of the dvc.yaml that init writes."
    epilog = "examples:\n  trueodds code"
    commands.add_parser("code", description=words, epilog=epilog).set_defaults(work=_code)


def run(arguments: argparse.Namespace) -> int:
    arguments.work()
    return 0


def _init() -> None:
    for path in starter.write(Path()):
        print(f"{path}: written")
    print(NEXT)


def _code() -> None:
    starter.write_code_hashes(Path())
