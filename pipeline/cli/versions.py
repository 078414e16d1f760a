"""The published versions of each model with their roles, and every change of roles, the newest last."""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.bundle import DEFAULT, SHADOW, BundleError, Change, ModelFolder
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("versions", description=__doc__, epilog=common.examples("versions", "versions digits"))
    parser.add_argument("model", nargs="?", help="(default: all)")
    common.add_models(parser)


def run(arguments: argparse.Namespace) -> int:
    print(versions_text(arguments.models, arguments.model))
    return 0


def versions_text(models: ModelFolder, model: str | None = None) -> str:
    """Every model's versions with their roles, and its audit log, the newest last.

    Raises:
        BundleError: no such model.
        AuditLogError: a damaged log.
    """
    names = models.names()
    if not names or (model and model not in names):
        missing = f" {model!r}" if model else ""
        raise BundleError(f"there is no model{missing} in {models.given}; trueodds publish")
    lines: list[str] = [models.place]
    for name in [model] if model else names:
        roles = {models.version_of(name, DEFAULT): "answers", models.version_of(name, SHADOW): "shadow"}
        lines.append(f"{name}, which answers calls that name no model" if name == models.default_model() else name)
        for version in models.versions(name):
            about = _about(models, name, version)
            lines.append(f"  {version}  {roles.get(version, ''):<8}{about}".rstrip())
        lines += map(_change_text, models.changes(name))
    if not model:
        changes = [_change_text(change) for change in models.changes()]
        lines += ["calls that name no model", *(changes or ["  no change is known"])]
    return "\n".join(lines)


def _change_text(change: Change) -> str:
    return (
        f"  {change.when[:19]}  {change.action:<9}{change.before or 'none'} -> {change.after or 'none'}"
        f"  {change.who}{': ' + change.why if change.why else ''}"
    )


def _about(models: ModelFolder, name: str, version: str) -> str:
    try:
        card, calibrator = models.summary(name, version)
    except BundleError as error:
        return f"damaged: {error}"
    after = card.metrics.get("after", {})
    numbers = ", ".join(f"{name} {after[key]:.4f}" for key, name in (("ece", "ECE"), ("nll", "NLL")) if after.get(key))
    promise = card.act_alone
    acts = "" if promise is None else f", {promise.short}"
    return f"{calibrator.name}, {card.method}{', ' + numbers if numbers else ''}{acts}"
