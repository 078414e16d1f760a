"""The number of a candidate among those that a model has had, for a budget that they share."""

from __future__ import annotations

from collections.abc import Iterable

from trueodds.bundle import SLOTS
from trueodds.bundle.audit_log import Change

ANSWERS = ("publish", "promote", "rollback")
"""Actions after which another version may answer."""


def candidate_number(changes: Iterable[Change], version: str) -> int:
    """Number of the last turn of `version` among all turns of candidates in a model's log, from 1 on.

    A turn begins when a version comes into a slot, and for all that are in one when another version begins to answer:
    their evidence begins anew. The number is fixed when the turn begins.

    >>> candidate_number([], "ab12")
    1
    """
    turns: list[str] = []
    held: dict[str, str | None] = dict.fromkeys(SLOTS)
    for change in changes:
        if change.action in SLOTS:
            held[change.action] = change.after
            begun = [change.after]
        else:
            begun = list(held.values()) if change.action in ANSWERS and change.before != change.after else []
        turns += [one for one in begun if one is not None]
    return len(turns) - turns[::-1].index(version) if version in turns else len(turns) + 1
