"""Giving a window to versions that began without one: their labels wait anew, as if they had had it from the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from service.store.rows import LabelSelection
from service.store.work import states
from service.store.work.deltas import TOTAL
from service.store.work.maturing import EARLY
from service.store.work.reading import MergedTotals, sums
from service.store.work.statements import Query, Work
from service.store.work.versions import KnownVersions, load_versions
from service.store.work.voiding import Restart, take_out
from trueodds.bundle.shadows import shadowed_by
from trueodds.sums.maturity import Maturity

BLOCK = 2000
"""Labels that are taken out at once."""


class Begun(NamedTuple):
    """A version that has got a window."""

    answers: int
    """They wait for it to close, or it has closed and they are counted next."""
    labels: int
    """Labels of these."""
    only_sums: int
    """Labels whose answers retention had removed: they stay in the sums as they came."""


def begin(windows: Mapping[str, Maturity], restart: Restart) -> Work[dict[tuple[str, str], Begun]]:
    """Give the versions of these models, and of their shadows, their window; those that have one keep it.

    All stored answers wait with the labels that have come for them; evidence begins anew. Nobody else may have the
    store open: processes keep what they know of a version.
    """
    known = yield from load_versions(KnownVersions())
    begun: dict[tuple[str, str], Begun] = {}
    for version, row in known.versions.items():
        maturity = windows.get(shadowed_by(row.model))
        if maturity is not None and row.maturity is None:
            begun[row.model, row.version] = yield from _begin(version, maturity, known, restart)
    return begun


def _begin(version: int, maturity: Maturity, known: KnownVersions, restart: Restart) -> Work[Begun]:
    into = f"INSERT INTO early ({', '.join(EARLY)}) SELECT version, prediction, label,"
    yield Query(f"{into} given_ms, import_id FROM replaced WHERE version = $1 ORDER BY key", (version,))
    now = "coalesce(corrected_ms, arrived_ms), import_id FROM labels WHERE version = $1 ORDER BY sequence"
    yield Query(f"{into} {now}", (version,))
    first, labels = None, 0
    while rows := (
        yield Query("SELECT sequence FROM labels WHERE version = $1 ORDER BY sequence LIMIT $2", (version, BLOCK))
    ):
        first = rows[0][0] if first is None else first
        yield from take_out(version, [sequence for (sequence,) in rows], LabelSelection(), known)
        labels += len(rows)
    yield Query(
        "INSERT INTO maturing (version, prediction, due_ms) SELECT version, id, created_ms + $2 FROM predictions"
        " WHERE version = $1",
        (version, maturity.window_ms),
    )
    ((waiting,),) = yield Query("SELECT count(*) FROM maturing WHERE version = $1", (version,))
    counted = (yield from sums(version, TOTAL, (None, None), totals=MergedTotals()))[0]
    yield Query(
        "UPDATE versions SET matures_ms = $2, unlabelled_means = $3, matured = $4 WHERE key = $1",
        (version, maturity.window_ms, maturity.unlabelled_means, counted.answers - waiting),
    )
    if first is not None:
        yield from states.restart(version, *restart, first)
    return Begun(int(waiting), labels, int(counted.labelled.n))
