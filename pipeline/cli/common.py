"""Parts of several commands: their options, the examples in their help texts, the log.

Imports stand inside the functions: a stage starts in .2 s, and with bundles and scipy, which it may not need, in .75 s.
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trueodds.cli import SERVICE, URL, Parser

if TYPE_CHECKING:
    from trueodds.client import Client

PARAMS = Path("params.yaml")
NONE = "none"
"""In place of a version or a role: none of them."""


@dataclass(frozen=True)
class Finding:
    """A line of `trueodds doctor`."""

    what: str
    state: Literal["ok", "skipped", "wrong"]
    words: str
    cure: str = ""

    def __str__(self) -> str:
        mark = {"ok": "ok", "skipped": "-", "wrong": "WRONG"}[self.state]
        return f"{mark:<6}{self.what:<11}{self.words}{f'. Cure: {self.cure}' if self.cure else ''}"


def examples(*lines: str, program: str = "trueodds") -> str:
    """The end of a help text: commands to type."""
    return "\n".join(["examples:", *(f"  {program} {line}" for line in lines)])


def log_to_stderr(level: int = logging.INFO) -> None:
    """Prints what the pipeline logs from this level on, plain, beside what the command itself prints."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipeline").setLevel(level)


def add_parameters(parser: Parser) -> None:
    """Adds `name=value ...` and --params."""
    parser.add_argument("parameters", nargs="*", metavar="name=value", help="a parameter in place of that of the file")
    parser.add_argument("--params", type=Path, default=PARAMS, metavar="FILE", help=f"(default: {PARAMS})")


def add_models(parser: Parser) -> None:
    """Adds --models, with the service's own default."""
    from trueodds.bundle import VARIABLE, open_models

    models = open_models()
    words = f"the model directory, or s3://bucket/prefix (default: {models.given_place}; {VARIABLE})"
    parser.add_argument("--models", type=open_models, default=models, metavar="FOLDER", help=words)


def add_why(parser: Parser) -> None:
    """Adds --why."""
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason, kept in the audit log of the model")


def add_promote(parser: Parser) -> None:
    """Adds --promote and --promote-net."""
    from pipeline.recalibrate import PROMOTE

    words = (
        "a calibrator under judgement. now: at once; when-better: the verdict better promotes it, worse withdraws it;"
        " never: a person decides (default: when-better)"
    )
    parser.add_argument("--promote", choices=PROMOTE, default="when-better", help=words)
    words = "the same of a net under judgement, the shadow (default: never)"
    parser.add_argument("--promote-net", choices=PROMOTE, default="never", help=words)


def add_service(parser: Parser) -> None:
    """Adds --service and --key-file."""
    from trueodds.client import keys

    words = f"URL of the service (default: {URL}; {SERVICE})"
    parser.add_argument("--service", metavar="URL", help=words)
    words = f"file with the admin key, where the service has one ({keys.KEY_FILE}; or the key itself: {keys.KEY})"
    parser.add_argument("--key-file", type=Path, metavar="FILE", help=words)


def client_of(arguments: argparse.Namespace) -> Client:
    """The service that the options of `add_service` name. Raises as `Client.from_environment`."""
    from trueodds.client import Client

    return Client.from_environment(arguments.service, arguments.key_file)
