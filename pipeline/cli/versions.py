"""The published versions of each model with their roles, and every change of roles, the newest last.

For what is under judgement it shows the evidence so far, where a service is named that has the labels (--service). The
evidence that decided in the past stands in the changes.
"""

from __future__ import annotations

import argparse
import os

from pipeline.cli import common
from pipeline.recalibrate.standing import standings, waiting_text
from trueodds.bundle import DEFAULT, RECALIBRATED, SHADOW, WAITING, BundleError, Change, PublishedModels, Role
from trueodds.cli import SERVICE, Subparsers
from trueodds.client import Client

ROLE_WORDS: dict[Role, str] = {WAITING: "waits", RECALIBRATED: "recalibrated", SHADOW: "shadow", DEFAULT: "answers"}


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("versions", description=__doc__, epilog=common.examples("versions", "versions digits"))
    parser.add_argument("model", nargs="?", help="(default: all)")
    common.add_models(parser)
    common.add_service(parser)


def run(arguments: argparse.Namespace) -> int:
    asked = arguments.service or os.environ.get(SERVICE)
    client = common.client_of(arguments) if asked else None
    print(versions_text(arguments.models, arguments.model, client))
    return 0


def versions_text(models: PublishedModels, model: str | None = None, client: Client | None = None) -> str:
    """Every model's versions with their roles, what is under judgement, and the audit log, the newest last.

    Raises:
        BundleError: no such model.
        AuditLogError: a damaged log.
    """
    names = models.names()
    if not names or (model and model not in names):
        missing = f" {model!r}" if model else ""
        raise BundleError(f"there is no model{missing} in {models.given_place}; trueodds publish")
    lines: list[str] = [models.place]
    for name in [model] if model else names:
        roles = {models.version_of(name, role): words for role, words in ROLE_WORDS.items()}
        lines.append(f"{name}, which answers calls that name no model" if name == models.default_model() else name)
        for version in models.versions(name):
            about = _about(models, name, version)
            lines.append(f"  {version}  {roles.get(version, ''):<13}{about}".rstrip())
        lines += [f"  {found}" for found in standings(models, name, client)]
        lines += [f"  {text}" for text in [waiting_text(models, name)] if text]
        lines += map(_change_text, models.changes(name))
    if not model:
        changes = [_change_text(change) for change in models.changes()]
        lines += ["calls that name no model", *(changes or ["  no change is known"])]
    return "\n".join(lines)


def _change_text(change: Change) -> str:
    return (
        f"  {change.when[:19]}  {change.action:<13}{change.before or 'none'} -> {change.after or 'none'}"
        f"  {change.who}{': ' + change.why if change.why else ''}"
    )


def _about(models: PublishedModels, name: str, version: str) -> str:
    try:
        card, calibrator = models.summary(name, version)
    except BundleError as error:
        return f"damaged: {error}"
    after = card.metrics.get("after", {})
    numbers = ", ".join(f"{name} {after[key]:.4f}" for key, name in (("ece", "ECE"), ("nll", "NLL")) if after.get(key))
    promise = card.act_alone
    acts = "" if promise is None else f", {promise.short}"
    return f"{calibrator.name}, {card.method}{', ' + numbers if numbers else ''}{acts}"
