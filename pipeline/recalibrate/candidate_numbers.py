"""Numbers the candidates that a model has had, for an error budget that they share."""

from __future__ import annotations

from collections.abc import Iterable

from trueodds.bundle import SHADOW, SLOTS
from trueodds.bundle.audit_log import Change

ANSWERS = ("publish", "promote", "rollback")
"""Actions after which another version may be served."""


def pair_number(version: int, shadow: int) -> int:
    """Return the number, from 1, of a pair of version and shadow of a model that another server serves.

    Both arguments count from 0. Beside another version the evidence starts again, so each pair has a number of its own.
    Later versions or shadows do not change it: pairs are ordered by their larger number, and among these the nearest
    come first.

    Examples:
        >>> [pair_number(0, 0), pair_number(1, 1), pair_number(0, 1), pair_number(1, 0), pair_number(2, 2)]
        [1, 2, 3, 4, 5]
    """
    apart = shadow - version
    return max(version, shadow) ** 2 + 1 + (2 * apart - 1 if apart > 0 else -2 * apart)


def candidate_number(changes: Iterable[Change], version: str) -> int:
    """Return the number, from 1, of the last turn of `version` among all turns of candidates in a model's log.

    A turn begins when a version enters a slot. For the shadow it also begins when another version than itself is newly
    served, because its evidence starts again. The number is fixed when the turn begins.

    Examples:
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
            begun = shadow  # a calibrator is withdrawn then, and the served version is not a candidate
        turns += [begun] if begun is not None else []
    return len(turns) - turns[::-1].index(version) if version in turns else len(turns) + 1
