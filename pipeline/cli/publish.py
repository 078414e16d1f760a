"""Copies a bundle to the model directory and makes it the served version of its model, unless --role says otherwise.

With --role shadow it waits behind a shadow that is under judgement; --displace takes that shadow's place.

The bundle is first tried as a service will use it, if onnxruntime and onnx are installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Literal

from pipeline.cli import common
from pipeline.stages import BUNDLE, INT8
from trueodds.cli import Subparsers
from trueodds.errors import ConfigError
from trueodds.processes.choices import DEFAULT, SHADOW

ROLES: dict[str, Literal["default", "shadow"] | None] = {"default": "default", "shadow": "shadow", common.NONE: None}


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples(
        "publish",
        'publish --bundle elsewhere/bundle --role shadow --why "retrained on May"',
        "publish --act-alone threshold.json",
        "publish --act-alone threshold=.93,risk=.05,confidence=.95",
    )
    parser = commands.add_parser("publish", description=__doc__, epilog=epilog)
    common.add_models(parser)
    common.add_why(parser)
    parser.set_defaults(bundle=BUNDLE)
    bundle = parser.add_mutually_exclusive_group()
    twin = f"publish the quantised bundle: {INT8}"
    bundle.add_argument("--int8", dest="bundle", action="store_const", const=INT8, help=twin)
    another = f"folder of the bundle (default: {BUNDLE})"
    bundle.add_argument("--bundle", type=Path, metavar="FOLDER", help=another)
    role = "default: serve it; shadow: score it beside the served version; none: only publish it (default: default)"
    parser.add_argument("--role", choices=ROLES, default="default", help=role)
    displace = "with --role shadow: replace the shadow under judgement; the evidence about the replaced one ends"
    parser.add_argument("--displace", action="store_true", help=displace)
    common.add_service(parser)
    promise = (
        "the guarantee for acting alone that is published with the version: a file of `trueodds threshold --out FILE`,"
        " or threshold=.93,risk=.05,confidence=.95; none: no guarantee (default: the bundle's, if it has one)"
    )
    parser.add_argument("--act-alone", metavar="FILE|TEXT", help=promise)
    parser.add_argument("--unnamed", action="store_true", help="also serve calls that name no model")


def run(arguments: argparse.Namespace) -> int:
    from pipeline.export.trial import try_bundle
    from pipeline.recalibrate.standing import publication_text
    from trueodds.bundle import ActAlone, LabelBundle, load_bundle

    why = arguments.why or "published by hand"
    role = ROLES[arguments.role]
    if arguments.displace and role != SHADOW:
        raise ConfigError(f"--displace was given with --role {arguments.role}; use it with --role shadow only")
    if note := try_bundle(arguments.bundle):
        print(note, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="trueodds-") as folder:
        bundle = load_bundle(arguments.bundle)
        if arguments.act_alone is not None:
            if isinstance(bundle, LabelBundle):
                problem = f"--act-alone is given, and {arguments.bundle} holds a model of independent labels"
                raise ConfigError(f"{problem}; a promise is about one question: leave it out")
            promise = None if arguments.act_alone == common.NONE else ActAlone.read(arguments.act_alone)
            bundle = bundle.promising(promise, Path(folder) / "bundle")
        ends = ""
        if role == DEFAULT or arguments.displace:
            client = common.client_of(arguments)
            place: Literal["default", "displace"] = "displace" if arguments.displace else "default"
            ends = publication_text(arguments.models, bundle.card.name, bundle.version, place, client)
            why = "; ".join(filter(None, [why, ends]))
        options = {"default_model": arguments.unnamed, "displace": arguments.displace}
        path = arguments.models.publish(bundle.directory, role, **options, why=why)
    key = path.parent.name, path.name
    if ends:
        print(ends)
    print(arguments.models.address(*key), arguments.models.standing(*key), sep="\n")
    return 0
