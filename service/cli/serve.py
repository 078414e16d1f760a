"""Serve the published models of a folder until SIGTERM or Ctrl-C. Queued requests are answered before it ends."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import signal
import sys
from pathlib import Path

from trueodds.cli import Subparsers

EPILOG = """examples:
  trueodds serve --port 8000
  trueodds serve --models published --store store.sqlite --workers 2

`trueodds key` makes a key. `trueodds replay` sends a data set to a running service."""
OPTIONS = Path(__file__).with_name("serve_options.json")
"""The settings as options. `python -m tools.tables` writes it, so that a help text need not import the settings."""


def add_parser(commands: Subparsers) -> None:
    """Add one option per setting. Settings without an option come from the environment or the defaults."""
    parser = commands.add_parser("serve", description=__doc__, epilog=EPILOG, argument_default=argparse.SUPPRESS)
    for name, option in json.loads(OPTIONS.read_text(encoding="utf-8")).items():
        flag = f"--{name.replace('_', '-')}"
        if option["is_switch"]:
            parser.add_argument(flag, help=option["help"], action="store_const", const="true")
        else:
            parser.add_argument(flag, help=option["help"], metavar=name.rpartition("_")[2].upper())


def run(arguments: argparse.Namespace) -> int:
    """Serve and return the exit status: 0; 1 if a file, store or port cannot be used; 2 for an invalid setting."""
    import asyncio

    from pydantic import ValidationError

    from service.cli import serving
    from service.settings import Settings
    from service.store import StoreError

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    options = vars(arguments)
    try:
        settings = Settings(**options)
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(map(str, problem["loc"]))
            secret = name.endswith(("_key_hash", "_webhook"))  # somebody may pass a key itself, or a URL with a token
            value = "" if secret else f" = {problem['input']!r}"
            place = f"--{name.replace('_', '-')} or TRUEODDS_{name.upper()}"
            print(f"{name}{value}: {problem['msg']} ({place})", file=sys.stderr)
        return 2
    if {"bundle", "models"} <= options.keys():  # --bundle overrides TRUEODDS_MODELS, which an image may set
        print("--bundle and --models exclude each other; give one bundle or a folder of bundles", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again after a clean shutdown
    try:
        if settings.url_file and not settings.url_file.parent.is_dir():
            raise NotADirectoryError(
                f"url_file = {settings.url_file}: the folder {settings.url_file.parent} does not exist"
            )
        asyncio.run(serving.check_store(settings))
    except (StoreError, NotADirectoryError) as error:
        print(error, file=sys.stderr)
        return 1
    try:
        listening = serving.listen(settings.host, settings.port)
    except OSError as error:
        print(f"cannot listen on {settings.host}:{settings.port}: {error}. --port 0 takes a free port", file=sys.stderr)
        return 1
    with contextlib.suppress(KeyboardInterrupt):
        if settings.workers == 1:
            return serving.serve_alone(settings, listening)
        return serving.serve_many(settings, options, listening)
    return 0
