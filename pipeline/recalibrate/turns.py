"""The number of a candidate among those that a model has had, for a budget that they share."""

from __future__ import annotations

from collections.abc import Iterable

from trueodds.bundle import SHADOW, SLOTS
from trueodds.bundle.audit_log import Change

ANSWERS = ("publish", "promote", "rollback")
"""Actions after which another version may answer."""


def candidate_number(changes: Iterable[Change], version: str) -> int:
    """Number of the last turn of `version` among all turns of candidates in a model's log, from 1 on.

    A turn begins when a version comes into a slot, and for the net in the shadow's place when another version than
    itself begins to answer: its evidence begins anew. The number is fixed when the turn begins.

    >>> candidate_number([], "ab12")
    1
    """
    turns: list[str] = []
    shadow: str | None = None
    for change in changes:
        begun: str | None = None
        if change.action in SLOTS:
            begun = change.after
            shadow = begun if change.action == SHADOW else shadow
        elif change.action in ANSWERS and shadow != change.after != change.before:
            begun = shadow  # a calibrator is withdrawn, and what answers now is no candidate
        turns += [begun] if begun is not None else []
    return len(turns) - turns[::-1].index(version) if version in turns else len(turns) + 1
