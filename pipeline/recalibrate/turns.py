"""The number of a candidate among those that a model has had, for a budget that they share."""

from __future__ import annotations

from collections.abc import Iterable

from trueodds.bundle.audit_log import Change

SLOTS = ("shadow", "recalibrated")
"""Actions of the audit log that begin the judgement of a version."""


def candidate_number(changes: Iterable[Change], version: str) -> int:
    """Number of the last turn of `version` among all turns of candidates in a model's log, from 1 on.

    A version that is judged again, on later answers, has another turn and another number. The number is fixed when the
    turn begins.

    >>> candidate_number([], "ab12")
    1
    """
    turns = [change.after for change in changes if change.action in SLOTS and change.after is not None]
    return len(turns) - turns[::-1].index(version) if version in turns else len(turns) + 1
