"""Makes a published version the served version of its model.

If it was under judgement, the audit log records the evidence about it, and any evidence about others that ends.
"""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.processes.choices import DEFAULT, SHADOW


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples('promote digits 3f2a9c01b7de --why "fewer errors"')
    parser = commands.add_parser("promote", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    parser.add_argument("version")
    common.add_models(parser)
    common.add_service(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    from pipeline.recalibrate.standing import anew_text, promotion_text
    from trueodds.bundle import Bundle

    models, model, version = arguments.models, arguments.model, arguments.version
    Bundle.load(models.version_folder(model, version))
    evidence, another = "", models.version_of(model, DEFAULT) != version
    if another:
        evidence = promotion_text(models, model, version, common.client_of(arguments))
    shadow = models.version_of(model, SHADOW)
    models.promote(model, version, why="; ".join(filter(None, [arguments.why, evidence])))
    anew = anew_text(models, model, shadow) if another else ""
    print(*filter(None, [models.standing(model, version), anew]), sep="\n")
    return 0
