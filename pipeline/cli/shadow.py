"""Judges a version of a model on the same inputs as the served version, without serving it.

A net becomes the shadow. A calibrator for the served net becomes the recalibrated version (--slot). A version that was
there before is replaced; the evidence about it is printed and kept in the audit log.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.processes.choices import DEFAULT, RECALIBRATED, SHADOW, SLOTS

if TYPE_CHECKING:
    from trueodds.bundle import PublishedModels


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("shadow digits 3f2a9c01b7de", f"shadow digits {common.NONE}")
    parser = commands.add_parser("shadow", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    parser.add_argument("version", help=f"the version, or {common.NONE} to withdraw the current one")
    parser.add_argument("--slot", choices=SLOTS, default=SHADOW, help=f"the candidate's slot (default: {SHADOW})")
    common.add_models(parser)
    common.add_service(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    from pipeline.recalibrate.judging import SLOT_WORDS
    from pipeline.recalibrate.standing import displaced_text

    models, model, slot = arguments.models, arguments.model, arguments.slot
    version = None if arguments.version == common.NONE else arguments.version
    if version is not None:
        models.version_folder(model, version)
        if slot == RECALIBRATED:
            _check_net(models, model, version)
    client = common.client_of(arguments)
    ends = displaced_text(models, model, slot, version, client)
    why = "; ".join(filter(None, [arguments.why, ends]))
    if version is None:
        models.withdraw(model, slot, why=why)
    else:
        models.shadow(model, version, slot=slot, why=why)
    now = models.version_of(model, slot)
    waited = ", which waited," if version is None else ""
    words = f"{model}/{now}{waited} is {SLOT_WORDS[slot]} now" if now else f"{model} has no {SLOT_WORDS[slot][4:]} now"
    print(f"{words}{f' ({ends})' if ends else ''}")
    return 0


def _check_net(models: PublishedModels, model: str, version: str) -> None:
    """Raise BundleError if the version's net is not the served one."""
    from trueodds.bundle import MODEL, Bundle, BundleError

    served = models.version_of(model, DEFAULT) or ""
    nets = [Bundle.load(models.version_folder(model, one)).card.files[MODEL] for one in (served, version)]
    if nets[0] != nets[1]:
        raise BundleError(f"{model}/{version} has another net than {served}; make it the shadow: leave --slot out")
