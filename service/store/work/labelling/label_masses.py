"""Label masses of a version's answers: the share of the next-token probability that fell on the classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from service.store.work.statements import Lock, Query, Work
from service.store.work.states import read
from trueodds.inputs.sources import LOW_MASS

NAME = "label_masses"
_UNORDERED = 2**62
"""Sequence number of the counts. They use no labels, so no label is kept for them."""

_WRITE = "INSERT INTO states (version, name, sequence, state) VALUES ($1, $2, $3, $4) ON CONFLICT (version, name)"
_STORED = (
    "SELECT count(*), coalesce(sum(label_mass), 0), coalesce(sum(CASE WHEN label_mass < $2 THEN 1 ELSE 0 END), 0)"
    " FROM predictions WHERE version = $1 AND label_mass IS NOT NULL"
)


class LabelMasses(NamedTuple):
    """Counts of the answers so far that came as log-probabilities."""

    answers: int = 0
    sum: float = 0.0
    """Sum of their label masses."""
    low: int = 0
    """Answers with a label mass below `LOW_MASS`."""


def add(version: int, masses: Sequence[float | None]) -> Work[None]:
    """Add the label masses of new answers, which are stored, to the counts of their version. None: it has none.

    The first counts are those of all stored answers: an older release stored label masses without counts.
    """
    known = [mass for mass in masses if mass is not None]
    if not known:
        return
    select = "SELECT state FROM states WHERE version = $1 AND name = $2"
    if not (yield Query(select, (version, NAME))):
        # Another transaction may insert the row at the same time. This waits for it, so there is a row to lock.
        yield Query(f"{_WRITE} DO NOTHING", (version, NAME, _UNORDERED, "null"))
    yield Lock(f"{select} FOR UPDATE", (version, NAME))
    if (before := (yield from of(version))) is None:
        ((answers, total, low),) = yield Query(_STORED, (version, LOW_MASS))
        after = LabelMasses(int(answers), float(total), int(low))
    else:
        low = sum(mass < LOW_MASS for mass in known)
        after = LabelMasses(before.answers + len(known), before.sum + float(sum(known)), before.low + low)
    yield Query(f"{_WRITE} DO UPDATE SET state = excluded.state", (version, NAME, _UNORDERED, json.dumps(after)))


def of(version: int) -> Work[LabelMasses | None]:
    """Read the counts of a version; None if no answer has a label mass."""
    state = yield from read(version, NAME)
    return None if state is None else LabelMasses(*state)
