"""Upgrades a store of an older schema, settles labels in doubt, and gives versions a maturity window."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from functools import partial
from typing import get_args

from pydantic import ValidationError

from service.alarm.watch import restarts
from service.labels.settling import reading
from service.settings import Settings
from service.store import Doubt, StoreError, begin_windows, open_store, upgrade_store
from service.store.rows import Decision, LabelSelection, Settlement
from trueodds.bundle.contents import shadowed_by
from trueodds.cli import Subparsers
from trueodds.texts import plural

EPILOG = """examples:
  trueodds store upgrade --store store.sqlite
  trueodds store settle as_names --who Ada --why "the application sends stars" --dry-run
  trueodds store mature --matures fraud=45d:ok"""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("store", description=__doc__, epilog=EPILOG)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    upgrading = actions.add_parser(
        "upgrade",
        help="convert a store of the schema before this release's",
        description="Converts a store of the schema before this release's, in one transaction. A copy of a SQLite file"
        " is kept beside it. End every service that uses the store first.",
    )
    settling = actions.add_parser(
        "settle",
        help="say what labels in doubt mean",
        description="Says what labels in doubt mean. The upgrade takes labels of models whose class names are whole"
        " numbers out of the reports: an integer may have been meant as an index or as a name.",
    )
    settling.add_argument(
        "decision",
        choices=get_args(Decision),
        help="as_stored: the stored classes are right; as_names: each stored index is the name of the class that was"
        " meant; void: nobody knows",
    )
    settling.add_argument("--who", required=True, help="who says so")
    settling.add_argument("--why", required=True, help="why")
    settling.add_argument("--model", help="only labels of a model, and of its shadow")
    settling.add_argument("--import-id", help="only labels of an import")
    settling.add_argument("--dry-run", action="store_true", help="only count them")
    maturing = actions.add_parser(
        "mature",
        help="give versions that began without a maturity window the one of their model",
        description="Gives versions that began without a maturity window the one of their model: all stored answers"
        " wait for it to close, with the labels that have come for them, and the alarm's evidence begins anew. End"
        " every service that uses the store first.",
    )
    maturing.add_argument(
        "--matures", default=argparse.SUPPRESS, help="the windows, as for trueodds serve (TRUEODDS_MATURES)"
    )
    default = Settings.model_fields["store"].default
    for action in (upgrading, settling, maturing):
        text = f"SQLite file, or postgresql:// URL (default: {default}; TRUEODDS_STORE)"
        action.add_argument("--store", default=argparse.SUPPRESS, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Does what is asked; 1 where the store cannot be used."""
    try:
        settings = Settings(**{name: value for name in ("store", "matures") if (value := vars(arguments).get(name))})
    except ValidationError as error:
        print(error.errors()[0]["msg"], file=sys.stderr)
        return 2
    try:
        if arguments.action == "upgrade":
            restart = restarts(settings)
            marked = asyncio.run(upgrade_store(settings.store, restart, partial(print, flush=True)))
            _say_upgraded(marked)
        elif arguments.action == "mature":
            asyncio.run(_mature(settings))
        else:
            asyncio.run(_settle(settings, arguments))
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _say_upgraded(marked: dict[tuple[str, str], Doubt] | None) -> None:
    if marked is None:
        print("The store has this release's schema: there is nothing to do.")
        return
    print("The store is upgraded.")
    for (model, version), doubt in marked.items():
        if doubt.labels:
            print(
                f"{plural(doubt.labels, 'label')} of {model}/{version} are in doubt: an integer may have been sent as"
                " an index or as a name. No report counts them until you settle them: trueodds store settle --help"
            )
        if doubt.only_sums:
            print(
                f"{plural(doubt.only_sums, 'label')} of {model}/{version} may have been misread and stay in the sums:"
                " retention has removed their rows. Report on predictions after them (since=...)."
            )


async def _mature(settings: Settings) -> None:
    begun = await begin_windows(settings.store, settings.matures, restarts(settings))
    for (model, version), counts in begun.items():
        window = dict(settings.matures)[shadowed_by(model)]
        print(
            f"{model}/{version} has the window {window} now: {plural(counts.answers, 'answer')} with"
            f" {plural(counts.labels, 'label')} count when it closes."
        )
        if counts.only_sums:
            print(
                f"{plural(counts.only_sums, 'label')} of {model}/{version} stay in the sums as they came: retention has"
                " removed their answers. Report on predictions after them (since=...)."
            )
    if not begun:
        print("No version without a window is of a model that TRUEODDS_MATURES, or --matures, names.")
        return
    store = await open_store(settings.store)  # counts what has matured by now
    await store.close()


async def _settle(settings: Settings, arguments: argparse.Namespace) -> None:
    settlement = Settlement(arguments.decision, time.time_ns() // 1_000_000, arguments.who, arguments.why)
    selection = LabelSelection(arguments.import_id, model=arguments.model)
    store = await open_store(settings.store)
    try:
        counts, held = await store.settle_labels(selection, settlement, dry_run=arguments.dry_run)
    finally:
        await store.close()
    for (model, version), settled in counts.items():
        print(f"{model}/{version}: {reading(settled, dry_run=arguments.dry_run)}")
    if held.confirmed + held.voided + held.waiting or not counts:
        print(f"Without a prediction yet: {reading(held, dry_run=arguments.dry_run)}")
