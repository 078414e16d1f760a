"""The number of a candidate among those that a model has had, for a budget that they share."""

from __future__ import annotations

from collections.abc import Iterable

from trueodds.bundle import SHADOW, SLOTS
from trueodds.bundle.audit_log import Change

ANSWERS = ("publish", "promote", "rollback")
"""Actions after which another version may answer."""


def pair_number(version: int, shadow: int) -> int:
    """Number of a shadow beside a version of a model that another server serves, from 1 on; both count from 0.

    Beside another version the evidence begins anew, so that each pair has a number of its own, which no later version
    changes, nor a shadow: pairs by their larger number, of these the nearest first.

    >>> [pair_number(0, 0), pair_number(1, 1), pair_number(0, 1), pair_number(1, 0), pair_number(2, 2)]
    [1, 2, 3, 4, 5]
    """
    apart = shadow - version
    return max(version, shadow) ** 2 + 1 + (2 * apart - 1 if apart > 0 else -2 * apart)


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
