"""Cautions of the report that come from the store, beside those that its numbers ask for."""

from __future__ import annotations

from datetime import UTC, datetime

from service.store.rows import HeldLabels, LabelSelection, Settlement, Voiding
from trueodds.reports.schemas import Held
from trueodds.sums.hours import HOUR_MS
from trueodds.texts import plural


def voiding_note(voidings: list[Voiding]) -> str:
    """The last voiding of a version's labels in words, with what it means for the evidence; "" where there is none."""
    if not voidings:
        return ""
    last, earlier = voidings[-1], len(voidings) - 1
    before = f" Before, labels were voided {plural(earlier, 'time')}." if earlier else ""
    return (
        f"{last.who} voided {plural(last.counts.labels, 'label')} of this version on {_time(last.at_ms)}"
        f" ({_which(last.selection)}): {last.why.rstrip('.')}. Every number is of the labels that remain, and the"
        " alarm's evidence was worked out anew from them: what it promises holds if labels were not voided for what"
        f" they say about the model.{before}"
    )


def doubtful_note(doubtful: int, settlements: list[Settlement]) -> str:
    """A caution where labels wait to be settled, and the last settlement in words; "" where there is neither."""
    notes = []
    if doubtful:
        notes.append(
            f"{plural(doubtful, 'label')} of this version are in no number here: an integer may have been sent as an"
            " index or as a class name, and an older release read it as an index in JSON and as a name in CSV. Say"
            " which it was: trueodds store settle, or POST /admin/labels/settle (decision as_stored, as_names or"
            " void)."
        )
    if settlements:
        last = settlements[-1]
        how = {"as_stored": "confirmed as they were stored", "as_names": "read as names", "void": "voided"}
        notes.append(
            f"{last.who} settled {plural(last.labels, 'label')} that had been in doubt on {_time(last.at_ms)}"
            f" ({how[last.decision]}): {last.why.rstrip('.')}."
        )
    return " ".join(notes)


def held_of(held: HeldLabels | None) -> Held | None:
    """As a field of the report."""
    if held is None:
        return None
    return Held(labels=held.count, oldest=datetime.fromtimestamp(held.oldest_ms / 1000, UTC))


def held_note(held: HeldLabels | None, now_ms: int) -> str:
    """A caution where labels of the model have waited for predictions for over an hour; "" otherwise."""
    if held is None or now_ms - held.oldest_ms < HOUR_MS:
        return ""
    have = "has" if held.count == 1 else "have"
    return (
        f"{plural(held.count, 'label')} of this model {have} come for ids that no prediction has so far, the oldest on"
        f" {_time(held.oldest_ms)}: send predictions and labels under the same ids."
    )


def _which(selection: LabelSelection) -> str:
    parts = []
    if selection.import_id is not None:
        parts.append(f"of the import {selection.import_id}")
    if selection.since_ms is not None:
        parts.append(f"that arrived since {_time(selection.since_ms)}")
    if selection.until_ms is not None:
        parts.append(f"that arrived before {_time(selection.until_ms)}")
    return ", ".join(parts)


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
