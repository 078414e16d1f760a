"""Lists the published versions of each model with their roles, and every change of roles, the newest last.

For versions under judgement it prints the evidence so far, if --url names a service with the labels. The list of
changes also holds the evidence of past decisions.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.processes.choices import DEFAULT, RECALIBRATED, SERVICE, SHADOW, WAITING, Role

if TYPE_CHECKING:
    from trueodds.bundle import Change, PublishedModels
    from trueodds.client import Client

ROLE_WORDS: dict[Role, str] = {WAITING: "waiting", RECALIBRATED: "recalibrated", SHADOW: "shadow", DEFAULT: "served"}


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("versions", description=__doc__, epilog=common.examples("versions", "versions digits"))
    parser.add_argument("model", nargs="?", help="the model (default: all)")
    common.add_models(parser)
    common.add_service(parser)


def run(arguments: argparse.Namespace) -> int:
    asked = arguments.url or os.environ.get(SERVICE)
    client = common.client_of(arguments) if asked else None
    print(versions_text(arguments.models, arguments.model, client))
    return 0


def versions_text(models: PublishedModels, model: str | None = None, client: Client | None = None) -> str:
    """Return every model's versions with their roles, the versions under judgement, and the audit log, newest last.

    Raises:
        BundleError: There is no such model.
        AuditLogError: The log is damaged.
    """
    from trueodds.bundle import BundleError

    names = models.names()
    if not names or (model and model not in names):
        missing = f" {model!r}" if model else ""
        raise BundleError(f"there is no model{missing} in {models.given_place}; run: trueodds publish")
    lines: list[str] = [models.place]
    for name in [model] if model else names:
        roles = {models.version_of(name, role): words for role, words in ROLE_WORDS.items()}
        lines.append(f"{name}, the model for calls that name none" if name == models.default_model() else name)
        for version in models.versions(name):
            about = _about(models, name, version)
            lines.append(f"  {version}  {roles.get(version, ''):<13}{about}".rstrip())
        lines += _standing_lines(models, name, client)
        lines += map(_change_text, models.changes(name))
    if not model:
        changes = [_change_text(change) for change in models.changes()]
        lines += ["calls that name no model", *(changes or ["  no changes"])]
    return "\n".join(lines)


def _standing_lines(models: PublishedModels, name: str, client: Client | None) -> list[str]:
    """Return the versions under judgement, and the net that waits, as lines."""
    from pipeline.recalibrate.standing import standings, waiting_text

    texts = [*map(str, standings(models, name, client)), waiting_text(models, name)]
    return [f"  {text}" for text in texts if text]


def _change_text(change: Change) -> str:
    """Return one change as a line."""
    return (
        f"  {change.when[:19]}  {change.action:<13}{change.before or 'none'} -> {change.after or 'none'}"
        f"  {change.who}{': ' + change.why if change.why else ''}"
    )


def _about(models: PublishedModels, name: str, version: str) -> str:
    """Return a version's calibrator, method and main metrics in one line."""
    from trueodds.bundle import BundleError

    try:
        summary = models.version_summary(name, version)
    except BundleError as error:
        return f"damaged: {error}"
    numbers = [f"{name} {value:.4f}" for name, value in summary.numbers.items()]
    return ", ".join(filter(None, [summary.calibrator, summary.method, *numbers, summary.act_alone]))
