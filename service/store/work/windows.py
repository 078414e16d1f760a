"""Closing of maturity windows: from then on an answer counts, with the label that it has at that time.

An answer enters the label log with the time at which its window ended, in the order of these times. So the result does
not depend on when, how often, or by whom windows are closed. A version that began without a window can be given one
(`begin`). Its labels then wait again, as if it had had the window from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from service.store.label_rules import LabelCandidate, LabelChange
from service.store.rows import VoidCounts, Voiding
from service.store.work import maturing
from service.store.work.labelling import label_queue
from service.store.work.labels import Arrival, candidates_in, write_changes
from service.store.work.maturing import GIVEN, GivenLabel
from service.store.work.statements import Insert, Query, Work, lock_of
from service.store.work.sums.deltas import TOTAL
from service.store.work.sums.queries import MergedTotals, sums
from service.store.work.versions import VersionCache, load_versions
from service.store.work.voiding import Restart, condition, move_out, record_voiding
from trueodds.bundle.contents import shadowed_by
from trueodds.sums.maturity import Maturity


def due(now_ms: int) -> Work[list[int]]:
    """Return the keys of versions with answers whose window has closed and that do not count yet."""
    rows = yield Query(
        "SELECT v.key FROM versions v WHERE v.matures_ms IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM maturing m WHERE m.version = v.key AND m.due_ms <= $1) ORDER BY v.key",
        (now_ms,),
    )
    return [key for (key,) in rows]


def close(version: int, now_ms: int, limit: int, cache: VersionCache) -> Work[int]:
    """Count the first `limit` answers whose window has closed. Return their number.

    Nobody labels answers of the version meanwhile, so each label is either in time or late.
    """
    yield lock_of(version)
    rows = yield Query(
        "SELECT prediction, due_ms FROM maturing WHERE version = $1 AND due_ms <= $2 ORDER BY due_ms, prediction"
        " LIMIT $3",
        (version, now_ms, limit),
    )
    if not rows:
        return 0
    due_ms = dict(rows)
    ids = list(due_ms)
    candidates = yield from candidates_in(version, ids)
    said = yield from maturing.given_labels("early", version, ids)
    in_time = {id_: [entry for entry in said.get(id_, ()) if entry.given_ms < due_ms[id_]] for id_ in candidates}
    silent = [candidates[id_] for id_, entries in in_time.items() if not entries]
    assumed = yield from _assumed_labels(version, silent, cache)
    changes: dict[tuple[int, str], LabelChange] = {}
    arrivals: dict[str, Arrival] = {}
    past: list[tuple[int, str, int, int, str | None]] = []
    for id_ in filter(candidates.__contains__, ids):
        before, late = in_time[id_], said.get(id_, [])[len(in_time[id_]) :]
        if id_ in assumed:
            before = [GivenLabel(assumed[id_], due_ms[id_], None)]
        every = [*before, *late]
        if not every:
            continue
        first, last = before[-1] if before else late[0], every[-1]
        corrected_ms = None if last is first else last.given_ms
        counted_ms = due_ms[id_] if before else None
        arrivals[id_] = Arrival(first.given_ms, last.import_id, corrected_ms, counted_ms, id_ in assumed)
        changes[version, id_] = LabelChange(candidates[id_], first.label, last.label)
        past += [(version, id_, *entry[:3]) for entry in every[:-1]]
    yield from write_changes(changes, cache, arrivals)
    if past:
        yield Insert("replaced", GIVEN, past)
    yield from maturing.forget(version, ids)
    yield Query(
        "UPDATE versions SET matured = matured + $2, assumed = assumed + $3 WHERE key = $1",
        (version, len(ids), len(assumed)),
    )
    return len(ids)


def _assumed_labels(version: int, candidates: list[LabelCandidate], cache: VersionCache) -> Work[dict[str, int]]:
    """Return the assumed labels of answers without one, by id. Answers whose missing label means nothing are left out.

    A shadow's answer gets the class of the answer that people saw, because they had no reason to complain about that
    one.
    """
    row = cache.versions[version]
    known_of = {candidate.id: maturing.assumed_label_of(row, candidate.predicted) for candidate in candidates}
    if row.maturity is None or row.maturity.unlabelled_means != "ok" or None not in known_of.values():
        return {id_: label for id_, label in known_of.items() if label is not None}
    answered = yield Query(
        "SELECT p.id, p.predicted, p.version FROM predictions p JOIN models m ON m.key = p.model"
        " WHERE p.id = ANY($1) AND m.name = $2",
        ([candidate.id for candidate in candidates], shadowed_by(row.model)),
    )
    alike = {key for key, other in cache.versions.items() if other.classes == row.classes}
    return {id_: predicted for id_, predicted, key in answered if key in alike}


def void(version: int, what: Voiding, *, dry_run: bool) -> Work[VoidCounts]:
    """Remove the selected labels that do not count yet. Return the counts of their answers."""
    if not dry_run:
        yield lock_of(version)
    where, arguments = condition(what.selection, "early", "early.given_ms", 2)
    rows = yield Query(f"SELECT DISTINCT prediction FROM early WHERE version = $1 AND {where}", (version, *arguments))
    given = yield from maturing.given_labels("early", version, [id_ for (id_,) in rows])
    of_ids = {id_: _void_counts(entries, what) for id_, entries in given.items()}
    counts = sum(of_ids.values(), VoidCounts())
    if not dry_run and counts.labels:
        yield Query(f"DELETE FROM early WHERE version = $1 AND {where}", (version, *arguments))
        yield label_queue.reopen(version, [id_ for id_, one in of_ids.items() if one.removed])
        yield record_voiding(version, replace(what, counts=counts))
    return counts


def _void_counts(entries: list[GivenLabel], what: Voiding) -> VoidCounts:
    kept = [entry for entry in entries if not what.selection.holds(entry.given_ms, entry.import_id)]
    if not kept:
        return VoidCounts(removed=1)
    return VoidCounts(kept=1) if kept[-1] is entries[-1] else VoidCounts(restored=1)


class WindowCounts(NamedTuple):
    """Counts of a version that has been given a window."""

    answers: int
    """Answers that wait for their window to close, or that are counted next."""
    labels: int
    """Labels of these answers."""
    only_sums: int
    """Labels whose answers retention has removed. They stay in the sums."""


def begin(windows: Mapping[str, Maturity], restart: Restart) -> Work[dict[tuple[str, str], WindowCounts]]:
    """Give the versions of these models, and of their shadows, a window. Versions with a window keep it.

    All stored answers wait, with the labels that have arrived for them, and the evidence starts afresh. No other
    process may have the store open, because processes cache their versions.
    """
    known = yield from load_versions(VersionCache())
    begun: dict[tuple[str, str], WindowCounts] = {}
    for version, row in known.versions.items():
        maturity = windows.get(shadowed_by(row.model))
        if maturity is not None and row.maturity is None:
            begun[row.model, row.version] = yield from _begin(version, maturity, known, restart)
    return begun


def _begin(version: int, maturity: Maturity, cache: VersionCache, restart: Restart) -> Work[WindowCounts]:
    labels = yield from move_out(version, "early", cache, restart)
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
    return WindowCounts(int(waiting), labels, int(counted.labelled.n))
