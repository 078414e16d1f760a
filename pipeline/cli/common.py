"""Parts that several commands share: options, examples in help texts, the log.

Imports stand inside the functions, here and in the commands, because a help text or a stage needs neither bundles nor
scipy, which take 0.8 s.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.choices import PROMOTE
from trueodds.cli import Parser
from trueodds.processes.choices import ADMIN_KEY, ADMIN_KEY_FILE, MODELS, SERVICE, URL

if TYPE_CHECKING:
    from trueodds.bundle import PublishedModels
    from trueodds.client import Client

PARAMS = Path("params.yaml")
NONE = "none"
"""Argument that stands for no version or no role."""


@dataclass(frozen=True)
class Finding:
    """One line that `trueodds doctor` prints."""

    what: str
    state: Literal["ok", "skipped", "wrong"]
    words: str
    cure: str = ""

    def __str__(self) -> str:
        mark = {"ok": "ok", "skipped": "-", "wrong": "WRONG"}[self.state]
        return f"{mark:<6}{self.what:<11}{self.words}{f'. Cure: {self.cure}' if self.cure else ''}"


def examples(*lines: str, program: str = "trueodds") -> str:
    """Return the end of a help text: commands to type."""
    return "\n".join(["examples:", *(f"  {program} {line}" for line in lines)])


def log_to_stderr(level: int = logging.INFO) -> None:
    """Print the pipeline's log messages of this level and above to stderr, without decoration."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipeline").setLevel(level)


def add_parameters(parser: Parser) -> None:
    """Add `name=value ...` and --params."""
    parser.add_argument("parameters", nargs="*", metavar="name=value", help="a parameter that overrides the file's")
    parser.add_argument("--params", type=Path, default=PARAMS, metavar="FILE", help=f"parameters (default: {PARAMS})")


def add_models(parser: Parser) -> None:
    """Add --models, with the same default as the service."""
    place = os.environ.get(MODELS) or "models"
    words = f"the model directory, or s3://bucket/prefix (default: {place}; {MODELS})"
    parser.add_argument("--models", type=_models, default=place, metavar="FOLDER", help=words)


def _models(place: str) -> PublishedModels:
    """Open the models. argparse also calls this with the default, when it has read all arguments."""
    from trueodds.bundle import open_models

    return open_models(place)


def add_why(parser: Parser) -> None:
    """Add --why."""
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason, which the model's audit log records")


def add_promote(parser: Parser) -> None:
    """Add --promote and --promote-net."""
    words = (
        "what happens to a calibrator under judgement. now: promote it at once; when-better: promote it at the verdict"
        " better, withdraw it at worse; never: a person decides (default: when-better)"
    )
    parser.add_argument("--promote", choices=PROMOTE, help=words)
    words = "the same for a net under judgement, the shadow (default: never)"
    parser.add_argument("--promote-net", choices=PROMOTE, default="never", help=words)


def add_service(parser: Parser) -> None:
    """Add --url and --key-file."""
    words = f"URL of the service (default: {URL}; {SERVICE})"
    parser.add_argument("--url", metavar="URL", help=words)
    words = f"file with the admin key, if the service needs one ({ADMIN_KEY_FILE}; or the key itself: {ADMIN_KEY})"
    parser.add_argument("--key-file", type=Path, metavar="FILE", help=words)


def client_of(arguments: argparse.Namespace) -> Client:
    """Return the client of the service that the options of `add_service` name.

    Raises the errors of `Client.from_environment`.
    """
    from trueodds.client import Client

    return Client.from_environment(arguments.url, arguments.key_file)
