"""Upgrade a store from an older schema, settle doubtful labels, and give versions a maturity window."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, get_args

from service.choices import STORE, Meaning
from trueodds.cli import Subparsers
from trueodds.texts import plural

if TYPE_CHECKING:
    from service.settings import Settings
    from service.store import DoubtfulCounts

EPILOG = """examples:
  trueodds store upgrade --store store.sqlite
  trueodds store settle as_names --who Ada --why "the application sends stars" --dry-run
  trueodds store mature --matures fraud=45d:ok"""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("store", description=__doc__, epilog=EPILOG)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    upgrading = actions.add_parser(
        "upgrade",
        help="convert a store of the previous release's schema",
        description="Convert a store of the previous release's schema, in one transaction. A copy of a SQLite file is"
        " kept beside it. First stop every service that uses the store.",
    )
    settling = actions.add_parser(
        "settle",
        help="decide what doubtful labels mean",
        description="Decide what doubtful labels mean. A label is doubtful if its model's class names are whole numbers"
        " and it was sent as an integer, which may be an index or a name. The upgrade leaves such labels out of the"
        " reports.",
    )
    settling.add_argument(
        "decision",
        choices=get_args(Meaning),
        help="as_stored: the stored classes are right; as_names: each stored index is in truth the name of the intended"
        " class; void: unknown, remove them",
    )
    settling.add_argument("--who", required=True, help="the person who decides")
    settling.add_argument("--why", required=True, help="the reason")
    settling.add_argument("--model", help="only labels of this model and of its shadow")
    settling.add_argument("--import-id", help="only labels of this import")
    settling.add_argument("--dry-run", action="store_true", help="only count them")
    maturing = actions.add_parser(
        "mature",
        help="give versions without a maturity window the window of their model",
        description="Give versions that began without a maturity window the window of their model. All stored answers"
        " and their labels then wait for the window to close, and the alarm's evidence starts afresh. First stop every"
        " service that uses the store.",
    )
    maturing.add_argument(
        "--matures", default=argparse.SUPPRESS, help="the windows, as for trueodds serve (TRUEODDS_MATURES)"
    )
    for action in (upgrading, settling, maturing):
        text = f"SQLite file, or postgresql:// URL (default: {STORE}; TRUEODDS_STORE)"
        action.add_argument("--store", default=argparse.SUPPRESS, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action. Return 0; 1 if the store cannot be used; 2 for an invalid setting."""
    from pydantic import ValidationError

    from service.alarm.watch import restarts
    from service.settings import Settings
    from service.store import StoreError, upgrade_store

    try:
        settings = Settings(**{name: value for name in ("store", "matures") if (value := vars(arguments).get(name))})
    except ValidationError as error:
        print(error.errors()[0]["msg"], file=sys.stderr)
        return 2
    try:
        if arguments.action == "upgrade":
            restart = restarts(settings)
            marked = asyncio.run(upgrade_store(settings.store, restart, partial(print, flush=True)))
            _print_upgrade(marked)
        elif arguments.action == "mature":
            asyncio.run(_mature(settings))
        else:
            asyncio.run(_settle(settings, arguments))
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _print_upgrade(doubts: dict[tuple[str, str], DoubtfulCounts] | None) -> None:
    if doubts is None:
        print("The store already has this release's schema. Nothing was changed.")
        return
    print("The store is upgraded.")
    for (model, version), doubt in doubts.items():
        if doubt.labels:
            print(
                f"{plural(doubt.labels, 'label')} of {model}/{version} are doubtful: an integer may have been sent as"
                " an index or as a name. No report counts them until you settle them: trueodds store settle --help"
            )
        if doubt.only_sums:
            print(
                f"{plural(doubt.only_sums, 'label')} of {model}/{version} may have been misread but stay in the sums,"
                " because retention has removed their rows. Use since=... to report on later predictions only."
            )


async def _mature(settings: Settings) -> None:
    from service.alarm.watch import restarts
    from service.store import begin_windows, open_store
    from trueodds.bundle.contents import shadowed_by

    begun = await begin_windows(settings.store, settings.matures, restarts(settings))
    for (model, version), counts in begun.items():
        window = dict(settings.matures)[shadowed_by(model)]
        print(
            f"{model}/{version} now has the window {window}: {plural(counts.answers, 'answer')} with"
            f" {plural(counts.labels, 'label')} count when it closes."
        )
        if counts.only_sums:
            print(
                f"{plural(counts.only_sums, 'label')} of {model}/{version} stay in the sums without a window, because"
                " retention has removed their answers. Use since=... to report on later predictions only."
            )
    if not begun:
        print("Nothing was changed: no version without a window belongs to a model in TRUEODDS_MATURES or --matures.")
        return
    store = await open_store(settings.store)  # counts the answers whose window has closed
    await store.close()


async def _settle(settings: Settings, arguments: argparse.Namespace) -> None:
    from service.labels.settling_route import reading
    from service.store import open_store
    from service.store.rows import LabelSelection, Settlement

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
        print(f"Still waiting for their predictions: {reading(held, dry_run=arguments.dry_run)}")
