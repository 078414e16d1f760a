"""Makes the previously served version of a model the served one again. A second call goes back one version further.

Versions under judgement were compared with the version served until now. The audit log records the evidence that ends.
"""

from __future__ import annotations

import argparse

from pipeline.cli import common
from trueodds.cli import Subparsers
from trueodds.processes.choices import SHADOW


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples('rollback digits --why "worse on Mondays"')
    parser = commands.add_parser("rollback", description=__doc__, epilog=epilog)
    parser.add_argument("model")
    common.add_models(parser)
    common.add_service(parser)
    common.add_why(parser)


def run(arguments: argparse.Namespace) -> int:
    from pipeline.recalibrate.standing import anew_text, promotion_text

    models, model = arguments.models, arguments.model
    ends = promotion_text(models, model, None, common.client_of(arguments))
    shadow = models.version_of(model, SHADOW)
    version = models.roll_back(model, why="; ".join(filter(None, [arguments.why, ends])))
    print(f"{model}/{version} is served again")
    if text := anew_text(models, model, shadow):
        print(text)
    return 0
