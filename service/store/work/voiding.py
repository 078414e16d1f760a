"""Voiding: removes wrong labels from the log and the sums.

A label that a voided one had replaced is restored. An answer without any other label then has none. The log keeps its
order: if the first form of a label is voided, its next form takes the same place in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.store.label_rules import LabelChange
from service.store.rows import LabelSelection, VoidCounts, Voiding
from service.store.work import maturing, states
from service.store.work.labelling import label_queue
from service.store.work.labels import candidates_in, move_labels, nullable
from service.store.work.maturing import GIVEN, GivenLabel
from service.store.work.scoring import score
from service.store.work.statements import ExecuteMany, Insert, Lock, Query, Work, lock_of
from service.store.work.versions import VersionCache
from trueodds.bundle.contents import shadows_of

HELD = 0
"""Version of held labels in the table of voidings. Real keys of versions begin with 1."""
MOVE_BATCH = 2000
"""Number of labels that `move_out` takes at once."""

Restart = Mapping[str, Callable[[Any, int], tuple[Any, int] | None]]
"""Functions that restart a state before a sequence number, by state name; see `states.restart`."""


def selected_versions(selection: LabelSelection, cache: VersionCache) -> list[int]:
    """Return the keys of versions that may have selected labels: those of the model and of its shadows."""
    models = None if selection.model is None else {selection.model, *shadows_of(selection.model)}
    return [key for key, version in cache.versions.items() if models is None or version.model in models]


def matching(version: int, selection: LabelSelection, after: int, limit: int) -> Work[list[int]]:
    """Read the first `limit` sequence numbers after `after` of labels that are selected or replaced selected ones."""
    now, arguments = condition(selection, "l", "coalesce(l.corrected_ms, l.arrived_ms)", 4)
    past, _ = condition(selection, "r", "r.given_ms", 4)
    rows = yield Query(
        f"SELECT l.sequence FROM labels l WHERE l.version = $1 AND l.sequence > $2 AND ({now} OR EXISTS (SELECT 1"
        f" FROM replaced r WHERE r.version = l.version AND r.prediction = l.prediction AND {past}))"
        " ORDER BY l.sequence LIMIT $3",
        (version, after, limit, *arguments),
    )
    return [sequence for (sequence,) in rows]


def latest() -> Work[int]:
    """Read the arrival time of the last label in Unix milliseconds, by its receiver's clock; 0 without labels."""
    rows = yield Query(
        "SELECT max(arrived_ms) FROM labels UNION ALL SELECT max(corrected_ms) FROM labels"
        " UNION ALL SELECT max(given_ms) FROM held UNION ALL SELECT max(given_ms) FROM replaced"
    )
    return max(ms or 0 for (ms,) in rows)


def condition(selection: LabelSelection, table: str, given_column: str, first: int) -> tuple[str, list[str | int]]:
    """Return the selection as SQL, and its arguments, whose numbers begin with `first`."""
    parts, arguments = ["TRUE"], list[str | int]()
    for column, value in (
        (f"{table}.import_id =", selection.import_id),
        (f"{given_column} >=", selection.since_ms),
        (f"{given_column} <", selection.until_ms),
    ):
        if value is not None:
            parts.append(f"{column} ${first + len(arguments)}")
            arguments.append(value)
    return f"({' AND '.join(parts)})", arguments


def in_order(entries: list[GivenLabel], counted_ms: int | None) -> list[GivenLabel]:
    """Return the labels of an answer in their order. With a window, which ended at `counted_ms`, it is that of time."""
    return entries if counted_ms is None else sorted(entries, key=lambda entry: entry.given_ms)


def first_of(entries: list[GivenLabel], counted_ms: int | None) -> GivenLabel:
    """Return the label that counted first. With a window it is the last label in time, if there is one."""
    in_time = [entry for entry in entries if counted_ms is not None and entry.given_ms < counted_ms]
    return in_time[-1] if in_time else entries[0]


@dataclass
class _Plan:
    """Changes of one block."""

    counts: VoidCounts = field(default_factory=VoidCounts)
    first: int | None = None
    """Smallest sequence number of a label that is removed or whose first form changes."""
    removals: list[tuple[str, int]] = field(default_factory=list)
    """Ids and sequence numbers."""
    restored_labels: dict[str, int] = field(default_factory=dict)
    """Restored labels by id."""
    updates: list[tuple[str, int, int, int, int | None, int, int, str | None, int | None, int | None]] = field(
        default_factory=list
    )
    """Id, sequence, label, arrived_ms, corrected_ms, first_correct, first_label, import_id, assumed, late."""
    assumed_count: int = 0
    """Number of answers that no longer have a label in time, and count with the model's default."""
    behind: list[tuple[int, str, int, int, None]] = field(default_factory=list)
    """Rows for `replaced`: assumed labels that a later label has replaced."""
    past: list[int] = field(default_factory=list)
    """Keys of replaced labels to delete."""

    def changes_evidence_from(self, sequence: int) -> None:
        self.first = sequence if self.first is None else min(self.first, sequence)


def block(
    version: int, sequences: list[int], voiding: Voiding, cache: VersionCache, restart: Restart, *, dry_run: bool
) -> Work[VoidCounts]:
    """Void the selected ones among these labels of a version, and restart the states before the first change.

    Nobody labels answers of the version meanwhile. The selection is evaluated again, since labels may have changed
    after `matching`.
    """
    if not dry_run:
        yield lock_of(version)
    plan = yield from _plan(version, sequences, voiding.selection, cache)
    if dry_run or not plan.counts.labels:
        return plan.counts
    yield from _write(version, plan, cache)
    yield label_queue.reopen(version, [id_ for id_, _ in plan.removals])
    if plan.first is not None:
        yield from _restart(version, restart, plan.first)
    yield record_voiding(version, replace(voiding, counts=plan.counts))
    return plan.counts


def move_out(version: int, table: str, cache: VersionCache, restart: Restart) -> Work[int]:
    """Move all labels of a version, with those that they replaced, out of the log and the sums. Return their number.

    `table` has the columns of `replaced`. The states start afresh, and no voiding is recorded.
    """
    into = f"INSERT INTO {table} ({', '.join(GIVEN)}) SELECT version, prediction, label,"
    yield Query(f"{into} given_ms, import_id FROM replaced WHERE version = $1 ORDER BY key", (version,))
    now = "coalesce(corrected_ms, arrived_ms), import_id FROM labels WHERE version = $1 ORDER BY sequence"
    yield Query(f"{into} {now}", (version,))
    first, count = None, 0
    while rows := (
        yield Query("SELECT sequence FROM labels WHERE version = $1 ORDER BY sequence LIMIT $2", (version, MOVE_BATCH))
    ):
        sequences = [sequence for (sequence,) in rows]
        first = sequences[0] if first is None else first
        yield from _write(version, (yield from _plan(version, sequences, LabelSelection(), cache)), cache)
        count += len(rows)
    if first is not None:
        yield from _restart(version, restart, first)
    return count


def _restart(version: int, restart: Restart, first: int) -> Work[None]:
    for name, function in restart.items():
        yield from states.restart(version, name, function, first)


def _plan(version: int, sequences: list[int], selection: LabelSelection, cache: VersionCache) -> Work[_Plan]:
    rows = yield Query(
        "SELECT prediction, sequence, label, arrived_ms, corrected_ms, predicted, first_correct, first_label,"
        " import_id, created_ms, counted_ms, assumed FROM labels WHERE version = $1 AND sequence = ANY($2)"
        " ORDER BY sequence",
        (version, sequences),
    )
    replaced = yield from maturing.given_labels("replaced", version, [id_ for id_, *_ in rows])
    plan = _Plan()
    ordered = cache.versions[version].ordered
    for id_, sequence, label, arrived_ms, corrected_ms, predicted, *of in rows:
        first_correct, first_label, import_id, created_ms, counted_ms, assumed = of
        now = GivenLabel(label, arrived_ms if corrected_ms is None else corrected_ms, import_id)
        every = in_order([*replaced.get(id_, ()), now], counted_ms)
        unsaid = every[0] if assumed else None
        kept = [e for e in every if e is unsaid or not selection.holds(e.given_ms, e.import_id)]
        if len(kept) == len(every):
            continue
        plan.past += [entry.key for entry in every if entry.key is not None and entry not in kept[:-1]]
        in_time = [entry for entry in kept if counted_ms is not None and entry.given_ms < counted_ms]
        if unsaid is None and counted_ms is not None and not in_time:
            means = maturing.assumed_label_of(cache.versions[version], predicted)
            if means is not None:
                unsaid = GivenLabel(means, counted_ms, None)
                kept = [unsaid, *kept]
                plan.assumed_count += 1
                if len(kept) > 1:
                    plan.behind.append((version, id_, means, counted_ms, None))
        if not kept:
            plan.counts += VoidCounts(removed=1)
            plan.removals.append((id_, sequence))
            plan.changes_evidence_from(sequence)
            continue
        first, last = first_of(kept, counted_ms), kept[-1]
        plan.counts += VoidCounts(kept=1) if last is now else VoidCounts(restored=1)
        if last.label != label:
            plan.restored_labels[id_] = last.label
        corrected = None if last is first else last.given_ms
        arrived, correct = max(first.given_ms, created_ms), int(first.label == predicted)
        # Evidence about levels depends on the first label itself, other evidence only on whether it is right.
        if correct != first_correct or (ordered and first.label != first_label):
            plan.changes_evidence_from(sequence)
        is_late = last is not first or not (in_time or first is unsaid)
        late = 1 if cache.versions[version].maturity is not None and is_late else None
        of_label = arrived, corrected, correct, first.label, last.import_id, 1 if first is unsaid else None, late
        plan.updates.append((id_, sequence, last.label, *of_label))
    return plan


def _write(version: int, plan: _Plan, cache: VersionCache) -> Work[None]:
    ids = [*(id_ for id_, _ in plan.removals), *plan.restored_labels]
    candidates, of = (yield from candidates_in(version, ids)), cache.versions[version]
    as_they_were = [LabelChange(c, c.label, c.label) for c in candidates.values() if c.label is not None]
    as_they_come_back = [LabelChange(candidates[id_], label, label) for id_, label in plan.restored_labels.items()]
    old = score(as_they_were, of) if as_they_were else None
    new = score(as_they_come_back, of) if as_they_come_back else None
    yield from move_labels(version, of, old, new)
    scores_by_id: dict[str, tuple[float | None, float | None]] = {}
    if new is not None:
        pairs = zip(nullable(new.nll_L), nullable(new.brier_L), strict=True)
        scores_by_id = dict(zip(plan.restored_labels, pairs, strict=True))
    yield Query("DELETE FROM replaced WHERE key = ANY($1)", (plan.past,))
    if plan.behind:
        yield Insert("replaced", GIVEN, plan.behind)
    if plan.assumed_count:
        yield Query("UPDATE versions SET assumed = assumed + $2 WHERE key = $1", (version, plan.assumed_count))
    yield Query(
        "DELETE FROM labels WHERE version = $1 AND sequence = ANY($2)",
        (version, [number for _, number in plan.removals]),
    )
    yield ExecuteMany(
        "UPDATE labels SET label = $3, arrived_ms = $4, corrected_ms = $5, first_correct = $6, first_label = $7,"
        " import_id = $8, assumed = $9, late = $10 WHERE version = $1 AND sequence = $2",
        [(version, *update) for _, *update in plan.updates],
    )
    sequence_of = {id_: sequence for id_, sequence, *_ in plan.updates}
    yield ExecuteMany(
        "UPDATE labels SET nll = $3, brier = $4 WHERE version = $1 AND sequence = $2",
        [(version, sequence_of[id_], *scores) for id_, scores in scores_by_id.items()],
    )


def void_held(voiding: Voiding, *, dry_run: bool) -> Work[int]:
    """Void the selected held labels. Return their number."""
    selection = voiding.selection
    where, arguments = condition(selection, "held", "held.given_ms", 1)
    if selection.model is not None:
        arguments.append(selection.model)
        where += f" AND model IN (SELECT key FROM models WHERE name = ${len(arguments)})"
    if dry_run:
        rows = yield Query(f"SELECT count(*) FROM held WHERE {where}", tuple(arguments))
        return int(rows[0][0])
    # A prediction that takes its held label waits for this lock, or has already moved the label into the log.
    yield Lock("SELECT key FROM models ORDER BY key FOR UPDATE")
    rows = yield Query(f"DELETE FROM held WHERE {where} RETURNING id", tuple(arguments))
    if rows:
        yield record_voiding(HELD, replace(voiding, counts=VoidCounts(removed=len(rows))))
    return len(rows)


def record_voiding(version: int, voiding: Voiding) -> Query:
    """Return the statement that records a voiding of labels of a version: which, when, by whom and why."""
    selection, counts = voiding.selection, voiding.counts
    return Query(
        "INSERT INTO voidings (version, at_ms, import_id, since_ms, until_ms, who, why, removed, restored, kept)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        (
            version,
            voiding.at_ms,
            selection.import_id,
            selection.since_ms,
            selection.until_ms,
            voiding.who,
            voiding.why,
            counts.removed,
            counts.restored,
            counts.kept,
        ),
    )


def voidings(version: int) -> Work[list[Voiding]]:
    """Read the voidings of a version's labels, in their order."""
    rows = yield Query(
        "SELECT import_id, since_ms, until_ms, at_ms, who, why, sum(removed), sum(restored), sum(kept) FROM voidings"
        " WHERE version = $1 GROUP BY import_id, since_ms, until_ms, at_ms, who, why ORDER BY at_ms",
        (version,),
    )
    return [
        Voiding(LabelSelection(*which), at_ms, who, why, VoidCounts(*map(int, counts)))
        for *which, at_ms, who, why, removed, restored, kept in rows
        for counts in [(removed, restored, kept)]
    ]


def last_voiding(version: int) -> Work[int]:
    """Read a number that changes with every voiding of a version's labels; earlier reads are then stale."""
    rows = yield Query("SELECT coalesce(max(key), 0) FROM voidings WHERE version = $1", (version,))
    return int(rows[0][0])


def is_voided(import_id: str) -> Work[bool]:
    """Return whether labels of an import were voided before."""
    rows = yield Query("SELECT 1 FROM voidings WHERE import_id = $1 LIMIT 1", (import_id,))
    return bool(rows)
