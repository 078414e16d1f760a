"""The published versions of each model with their roles, and every change of roles, the newest last."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.cli import common
from trueodds.bundle import audit_log, model_folder
from trueodds.bundle.bundle import DEFAULT, SHADOW, Bundle, BundleError
from trueodds.cli import Subparsers


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("versions", description=__doc__, epilog=common.examples("versions", "versions digits"))
    parser.add_argument("model", nargs="?", help="(default: all)")
    common.add_models(parser)


def run(arguments: argparse.Namespace) -> int:
    print(versions_text(arguments.models, arguments.model))
    return 0


def versions_text(models: Path, model: str | None = None) -> str:
    """Every model's versions with their roles, and its history, the newest last.

    Raises:
        BundleError: no such model.
        HistoryError: a damaged history.
    """
    names = [model] if model else sorted(p.name for p in _folders(models))
    if (model and not (models / model).is_dir()) or not names:
        raise BundleError(f"there is no model{f' {model!r}' if model else ''} in {models}; python -m pipeline publish")
    lines: list[str] = [f"{models.resolve()}"]
    unnamed = model_folder.default_model(models)
    for name in names:
        folder, roles = models / name, {DEFAULT: "answers", SHADOW: "shadow"}
        named = {model_folder.role(models, name, which): words for which, words in roles.items()}
        lines.append(f"{name}, which answers calls that name no model" if name == unnamed else name)
        published = sorted(_folders(folder), key=lambda p: p.stat().st_mtime)
        lines += [f"  {v.name}  {named.get(v.name, ''):<8}{_about(v)}".rstrip() for v in published]
        lines += _changes(folder)
    if not model:
        lines += ["calls that name no model", *(_changes(models) or ["  no change is known"])]
    return "\n".join(lines)


def _changes(folder: Path) -> list[str]:
    return [
        f"  {change.when[:19]}  {change.what:<9}{change.before or 'none'} -> {change.after or 'none'}"
        f"  {change.who}{': ' + change.why if change.why else ''}"
        for change in audit_log.read(folder)
    ]


def _about(folder: Path) -> str:
    try:
        bundle = Bundle.load(folder)
    except BundleError as error:
        return f"damaged: {error}"
    after = bundle.card.metrics.get("after", {})
    numbers = ", ".join(f"{name} {after[key]:.4f}" for key, name in (("ece", "ECE"), ("nll", "NLL")) if after.get(key))
    return f"{bundle.calibrator.name}, {bundle.card.method}{', ' + numbers if numbers else ''}"


def _folders(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    except OSError:
        return []
