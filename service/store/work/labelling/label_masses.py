"""Label masses of a version's answers: the share of the next-token probability that fell on the classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from service.store.work.statements import Lock, Query, Work, lock_of
from service.store.work.states import read
from trueodds.inputs.sources import LOW_MASS

NAME = "label_masses"
_UNORDERED = 2**62
"""Sequence number of the counts. They use no labels, so no label is kept for them."""


class LabelMasses(NamedTuple):
    """Counts of the answers so far that came as log-probabilities."""

    answers: int = 0
    sum: float = 0.0
    """Sum of their label masses."""
    low: int = 0
    """Answers with a label mass below `LOW_MASS`."""


def add(version: int, masses: Sequence[float | None]) -> Work[None]:
    """Add the label masses of new answers to the counts of their version. None: the answer has none."""
    known = [mass for mass in masses if mass is not None]
    if not known:
        return
    select = "SELECT state FROM states WHERE version = $1 AND name = $2"
    yield Lock(f"{select} FOR UPDATE", (version, NAME))
    if not (yield Query(select, (version, NAME))):
        yield lock_of(version)  # there is no row to lock yet
    before = (yield from of(version)) or LabelMasses()
    low = sum(mass < LOW_MASS for mass in known)
    after = LabelMasses(before.answers + len(known), before.sum + float(sum(known)), before.low + low)
    yield Query(
        "INSERT INTO states (version, name, sequence, state) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (version, name) DO UPDATE SET state = excluded.state",
        (version, NAME, _UNORDERED, json.dumps(after)),
    )


def of(version: int) -> Work[LabelMasses | None]:
    """Read the counts of a version; None if no answer has a label mass."""
    state = yield from read(version, NAME)
    return None if state is None else LabelMasses(*state)
