"""python -m pipeline <command>: what is served, and how to change it.

These commands need numpy and scipy only, so they run where the service does.

publish                   copy artifacts/bundle (--int8: artifacts/bundle_int8) to the model directory
recalibrate               fit a calibrator on the live labels of what answers, publish it as the shadow, judge it
judge                     weigh the shadow on labels that came since: promote it, withdraw it, or leave it open
promote MODEL VERSION     let a published version answer for its model
shadow MODEL VERSION      score a version on the same inputs without answering (none: no version)
rollback MODEL            let the version answer that did before
default [MODEL]           let a model answer calls that name none; without a name: which one does
versions [MODEL]          what is published, what answers, what shadows, and how it came to that
doctor                    whether versions, folders, schedules and the alarm's way agree, a line each; exit 1 if not

The model directory is that of --models, else of TRUEODDS_MODELS, else models/ here: the service's own rule.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.bundle import audit_log, model_folder, publishing
from trueodds.bundle.bundle import DEFAULT, SHADOW, Bundle, BundleError
from trueodds.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.recalibrate import Choice

NONE = "none"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="command")
    every = argparse.ArgumentParser(add_help=False)
    here = model_folder.models_folder()
    every.add_argument("--models", type=Path, default=here, help=f"the model directory (default: {here})")
    reasoned = argparse.ArgumentParser(add_help=False, parents=[every])
    reasoned.add_argument("--why", default="", help="kept in the history")
    for name in ("recalibrate", "judge"):
        _asking(commands.add_parser(name, parents=[reasoned]), fits=name == "recalibrate")
    for name in ("promote", "shadow", "rollback"):
        command = commands.add_parser(name, parents=[reasoned])
        command.add_argument("model")
        if name != "rollback":
            command.add_argument("version", help="none: no version" if name == "shadow" else None)
    _publishing(commands.add_parser("publish", parents=[reasoned]))
    default = commands.add_parser("default", parents=[reasoned])
    default.add_argument("model", nargs="?")
    default.add_argument("--rollback", action="store_true", help="the model that did before")
    _connecting(commands.add_parser("doctor", parents=[every]))
    commands.add_parser("versions", parents=[every]).add_argument("model", nargs="?")
    return found


def _publishing(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group()
    what.add_argument("--int8", action="store_true", help="the quantised twin: artifacts/bundle_int8")
    what.add_argument("--bundle", type=Path, metavar="FOLDER", help="another bundle than artifacts/bundle")
    command.add_argument(
        "--role",
        choices=(DEFAULT, SHADOW, NONE),
        default=DEFAULT,
        help="for its own model: answer; be scored beside what answers, if anything does; none (default: default)",
    )
    command.add_argument("--unnamed", action="store_true", help="answer calls that name no model, too")


def _asking(command: argparse.ArgumentParser, *, fits: bool) -> None:
    from pipeline.recalibrate import LABELS
    from trueodds.calibrators.selection import CANDIDATES

    _connecting(command)
    command.add_argument("--model", help="default: what answers when nothing is named")
    choices = ("now", "evidence", "never") if fits else ("evidence", "never")
    command.add_argument("--promote", choices=choices, default="evidence", help="default: evidence")
    command.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="for evidence (default: 0)")
    if fits:
        command.add_argument("--version", help="do nothing if another one answers by now")
        command.add_argument("--labels", type=int, default=LABELS, help=f"of the last, at most (default: {LABELS:,})")
        names = ", ".join(CANDIDATES)
        command.add_argument("--candidates", nargs="+", default=(), metavar="NAME", help=f"calibrators ({names})")


def _connecting(command: argparse.ArgumentParser) -> None:
    from pipeline.recalibrate import client

    command.add_argument("--service", help=f"its URL (default: {client.SERVICE}, or {client.URL})")
    command.add_argument("--key-file", type=Path, help=f"holds the admin key, if it has one (or {client.KEY}: the key)")


def run(argv: list[str]) -> None:
    """Run one command and print what came of it.

    Raises:
        UserError: with the cure.
    """
    given = parser().parse_args(argv)
    match given.command:
        case "recalibrate" | "judge":
            _ask(given)
        case "publish":
            _publish(given)
        case "default":
            _default(given)
        case "doctor":
            _doctor(given)
        case "promote":
            Bundle.load(model_folder.find(given.models, given.model, given.version))
            publishing.promote(given.models, given.model, given.version, why=given.why)
            print(model_folder.standing(given.models, given.model, given.version))
        case "shadow":
            version = None if given.version == NONE else given.version
            publishing.set_shadow(given.models, given.model, version, why=given.why)
            print(
                f"{given.model} has no shadow now" if version is None else f"{given.model}/{version} is the shadow now"
            )
        case "rollback":
            version = publishing.rollback(given.models, given.model, why=given.why)
            print(f"{given.model}/{version} answers again")
        case _:
            print(versions_text(given.models, given.model))


def _publish(given: argparse.Namespace) -> None:
    from pipeline import stages

    role: Any = None if given.role == NONE else given.role
    bundle = given.bundle or (stages.INT8 if given.int8 else stages.BUNDLE)
    why = given.why or "published by hand"
    path = publishing.publish(bundle, given.models, role, unnamed=given.unnamed, why=why)
    print(path, model_folder.standing(given.models, path.parent.name, path.name), sep="\n")


def _doctor(given: argparse.Namespace) -> None:
    from pipeline.cli.doctor import doctor
    from pipeline.recalibrate.client import SERVICE, client_of

    named = bool(given.service) or SERVICE in os.environ
    doctor(client_of(given.service, given.key_file), given.models, expected=named)


def _default(given: argparse.Namespace) -> None:
    if given.rollback and given.model:
        raise ConfigError(f"default takes --rollback or a model, not both; given: {given.model}")
    if given.rollback:
        name = publishing.rollback_default(given.models, why=given.why)
    elif given.model:
        publishing.set_default(given.models, name := given.model, why=given.why)
    else:
        name = model_folder.find_default(given.models).parent.name
    version = model_folder.find_default(given.models).name
    print(f"{name}/{version} answers calls that name no model")


def _ask(given: argparse.Namespace) -> None:
    from pipeline import recalibrate as room
    from pipeline.recalibrate import Recalibration

    fits = (
        {"version": given.version, "labels": given.labels, "candidates": tuple(given.candidates)}
        if given.command == "recalibrate"
        else {}
    )
    asked = Recalibration(
        room.client_of(given.service, given.key_file),
        given.models,
        given.model,
        promote=given.promote,
        wait_seconds=given.wait,
        why=given.why,
        say=print,
        **fits,
    )
    outcome = (room.recalibrate if fits else room.judge)(asked)
    if outcome.choice:
        print(table_text(outcome.choice))
    print(outcome.words)


def table_text(choice: Choice) -> str:
    """The candidates with their NLL, and ECE before and after."""
    lines = [f"{choice.rows:,} live labels, cross-validated", ""]
    lines.append(f"{'calibrator':<28}{'NLL':>10}{'gain':>12}{'+-':>10}")
    served = (f"{choice.served.name} (served)", choice.served)
    for name, line in (served, *((line.name, line) for line in choice.table)):
        if line.nll is None or line.gain is None or line.gain_standard_error is None:
            lines.append(f"{name:<28}{line.problem}")
        else:
            mark = "  <" if line is choice.best and choice.better else f"  {line.problem}" if line.problem else ""
            lines.append(f"{name:<28}{line.nll:>10.4f}{line.gain:>12.4f}{line.gain_standard_error:>10.4f}{mark}")
    for when, judged in (("before", choice.before), ("after", choice.after)):
        v = judged.values
        interval = f"{choice.settings.level:.0%} interval {v['ece_lower']:.4f} .. {v['ece_upper']:.4f}"
        lines += [""] * (when == "before") + [
            f"ECE {when:<7} {v['ece']:.4f}, {interval}, noise floor {v['floor_p95']:.4f}"
        ]
    return "\n".join([*lines, ""])


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
        found = Bundle.load(folder)
    except BundleError as error:
        return f"damaged: {error}"
    after = found.card.metrics.get("after", {})
    numbers = ", ".join(f"{name} {after[key]:.4f}" for key, name in (("ece", "ECE"), ("nll", "NLL")) if after.get(key))
    return f"{found.calibrator.name}, {found.card.method}{', ' + numbers if numbers else ''}"


def _folders(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    except OSError:
        return []
