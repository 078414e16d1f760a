"""Commands that change a model's roles in the model directory: promote, rollback, shadow and default."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.choices import SLOT_WORDS
from pipeline.cli import common
from trueodds.cli import Parser, Subparsers
from trueodds.processes.choices import DEFAULT, RECALIBRATED, SHADOW, SLOTS

if TYPE_CHECKING:
    from trueodds.bundle import PublishedModels

PROMOTE = """Makes a published version the served version of its model.

If it was under judgement, the audit log records the evidence about it, and any evidence about others that ends.
"""
ROLLBACK = """Makes the previously served version of a model the served one again. A second call goes back one version further.

Versions under judgement were compared with the version served until now. The audit log records the evidence that ends.
"""  # noqa: E501
SHADOWS = """Judges a version of a model on the same inputs as the served version, without serving it.

A net becomes the shadow. A calibrator for the served net becomes the recalibrated version (--slot). A version that was
there before is replaced; the evidence about it is printed and kept in the audit log.
"""
CHOICE = "Chooses the model for calls that name no model. Without arguments, prints the current choice."


def add_parser(commands: Subparsers) -> None:
    promoting = _parser(commands, "promote", PROMOTE, 'promote digits 3f2a9c01b7de --why "fewer errors"')
    promoting.add_argument("model")
    promoting.add_argument("version")
    rolling = _parser(commands, "rollback", ROLLBACK, 'rollback digits --why "worse on Mondays"')
    rolling.add_argument("model")
    shadowing = _parser(commands, "shadow", SHADOWS, "shadow digits 3f2a9c01b7de", f"shadow digits {common.NONE}")
    shadowing.add_argument("model")
    shadowing.add_argument("version", help=f"the version, or {common.NONE} to withdraw the current one")
    shadowing.add_argument("--slot", choices=SLOTS, default=SHADOW, help=f"the candidate's slot (default: {SHADOW})")
    for parser, work in ((promoting, promote), (rolling, roll_back), (shadowing, shadow)):
        parser.set_defaults(work=work)
        common.add_models(parser)
        common.add_service(parser)
        common.add_why(parser)
    choosing = _parser(commands, "default", CHOICE, "default", "default digits", "default --rollback")
    choosing.set_defaults(work=choose_default)
    choice = choosing.add_mutually_exclusive_group()
    choice.add_argument("model", nargs="?")
    choice.add_argument("--rollback", action="store_true", help="choose the previous model again")
    common.add_models(choosing)
    common.add_why(choosing)


def _parser(commands: Subparsers, name: str, about: str, *examples: str) -> Parser:
    """Add the parser of a command."""
    parser: Parser = commands.add_parser(name, description=about, epilog=common.examples(*examples))
    return parser


def run(arguments: argparse.Namespace) -> int:
    print(*filter(None, arguments.work(arguments.models, arguments)), sep="\n")
    return 0


def promote(models: PublishedModels, arguments: argparse.Namespace) -> list[str]:
    """Serve a version, and return what has changed in words."""
    from pipeline.recalibrate.standing import anew_text, promotion_text
    from trueodds.bundle import load_bundle

    model, version = arguments.model, arguments.version
    load_bundle(models.version_folder(model, version))
    evidence, another = "", models.version_of(model, DEFAULT) != version
    if another:
        evidence = promotion_text(models, model, version, common.client_of(arguments))
    before = models.version_of(model, SHADOW)
    models.promote(model, version, why=_why(arguments, evidence))
    return [models.standing(model, version), anew_text(models, model, before) if another else ""]


def roll_back(models: PublishedModels, arguments: argparse.Namespace) -> list[str]:
    """Serve the previous version again, and return what has changed in words."""
    from pipeline.recalibrate.standing import anew_text, promotion_text

    model = arguments.model
    ends = promotion_text(models, model, None, common.client_of(arguments))
    before = models.version_of(model, SHADOW)
    version = models.roll_back(model, why=_why(arguments, ends))
    return [f"{model}/{version} is served again", anew_text(models, model, before)]


def shadow(models: PublishedModels, arguments: argparse.Namespace) -> list[str]:
    """Put a version into a slot, or withdraw the one there, and return what has changed in words."""
    from pipeline.recalibrate.standing import displaced_text

    model, slot = arguments.model, arguments.slot
    version = None if arguments.version == common.NONE else arguments.version
    if version is not None:
        models.version_folder(model, version)
        if slot == RECALIBRATED:
            _check_net(models, model, version)
    ends = displaced_text(models, model, slot, version, common.client_of(arguments))
    if version is None:
        models.withdraw(model, slot, why=_why(arguments, ends))
    else:
        models.shadow(model, version, slot=slot, why=_why(arguments, ends))
    now = models.version_of(model, slot)
    waited = ", which waited," if version is None else ""
    words = f"{model}/{now}{waited} is {SLOT_WORDS[slot]} now" if now else f"{model} has no {SLOT_WORDS[slot][4:]} now"
    return [f"{words}{f' ({ends})' if ends else ''}"]


def choose_default(models: PublishedModels, arguments: argparse.Namespace) -> list[str]:
    """Choose the model for calls that name none, if the arguments do, and return the choice in words."""
    if arguments.rollback:
        models.roll_back_default(why=arguments.why)
    elif arguments.model:
        models.set_default(arguments.model, why=arguments.why)
    version = models.default()
    return [f"{version.parent.name}/{version.name} serves calls that name no model"]


def _why(arguments: argparse.Namespace, evidence: str) -> str:
    """Return the reason for the audit log: the person's, and the evidence."""
    return "; ".join(filter(None, [arguments.why, evidence]))


def _check_net(models: PublishedModels, model: str, version: str) -> None:
    """Raise BundleError if the version's net is not the served one."""
    from trueodds.bundle import MODEL, BundleError, load_bundle

    served = models.version_of(model, DEFAULT) or ""
    nets = [load_bundle(models.version_folder(model, one)).card.files[MODEL] for one in (served, version)]
    if nets[0] != nets[1]:
        raise BundleError(f"{model}/{version} has another net than {served}; make it the shadow: leave --slot out")
