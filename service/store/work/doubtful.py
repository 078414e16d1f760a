"""Doubtful labels: they are outside the log and the sums until a person decides what they mean.

Until schema 7, an integer label was a class's index in JSON and its name in CSV. For classes "1" to "5" these differ,
and the store does not know in which format a label was sent. The upgrade removes such labels, like a voiding. It keeps
them here together with the labels that they had replaced. Confirming a label restores all of them.
"""

from __future__ import annotations

import json
from dataclasses import replace

from service.choices import Meaning
from service.store.label_rules import LabelCandidate, LabelChange, names_of
from service.store.rows import LabelSelection, SettleCounts, Settlement, VoidCounts, Voiding
from service.store.work.labels import Arrival, candidates_in, write_changes
from service.store.work.maturing import GIVEN, GivenLabel, given_labels
from service.store.work.statements import ExecuteMany, Insert, Lock, Query, Work, lock_of
from service.store.work.versions import VersionCache
from service.store.work.voiding import condition, record_voiding

_WAITING = (
    "NOT EXISTS (SELECT 1 FROM labels l WHERE l.version = doubtful.version AND l.prediction = doubtful.prediction)"
)


def waiting(version: int) -> Work[int]:
    """Count the answers of a version with a doubtful label and no other label since.

    No sum and no log has them until they are settled.
    """
    rows = yield Query(f"SELECT count(DISTINCT prediction) FROM doubtful WHERE version = $1 AND {_WAITING}", (version,))
    return int(rows[0][0])


def settle(
    version: int,
    after: str,
    limit: int,
    selection: LabelSelection,
    settlement: Settlement,
    cache: VersionCache,
    *,
    dry_run: bool,
) -> Work[tuple[str, SettleCounts]]:
    """Settle the doubtful labels of the first `limit` answers above the id `after`.

    An answer is selected if any of its labels is. Return the last id, which is empty at the end, and the counts.
    """
    if not dry_run:
        yield lock_of(version)
    where, arguments = condition(selection, "doubtful", "doubtful.given_ms", 4)
    found = yield Query(
        f"SELECT DISTINCT prediction FROM doubtful WHERE version = $1 AND prediction > $2 AND {where}"
        " ORDER BY prediction LIMIT $3",
        (version, after, limit, *arguments),
    )
    if not found:
        return "", SettleCounts()
    ids = [id_ for (id_,) in found]
    entries = yield from given_labels("doubtful", version, ids)
    candidates = yield from candidates_in(version, ids)
    decision = settlement.decision
    unlabelled = [id_ for id_ in ids if id_ in candidates and candidates[id_].label is None]
    if decision == "void":
        back, unknown = dict[str, list[GivenLabel]](), list[str]()
    else:
        read = {id_: _read(entries[id_], cache.versions[version].classes, decision) for id_ in unlabelled}
        back = {id_: said for id_, said in read.items() if said is not None}
        unknown = [id_ for id_, said in read.items() if said is None]
    counts = SettleCounts(confirmed=len(back), voided=len(unlabelled) - len(back) - len(unknown), waiting=len(unknown))
    if not dry_run:
        yield from _confirm(version, back, candidates, cache)
        done = sorted(set(ids) - set(unknown))
        yield Query("DELETE FROM doubtful WHERE version = $1 AND prediction = ANY($2)", (version, done))
        if settled := counts.confirmed + counts.voided:
            row = (version, settlement.at_ms, decision, settlement.who, settlement.why, settled)
            yield Insert("settlements", ("version", "at_ms", "decision", "who", "why", "labels"), [row])
    return ids[-1], counts


def _read(entries: list[GivenLabel], classes: tuple[str, ...], decision: Meaning) -> list[GivenLabel] | None:
    """Return the labels of one answer as the decision reads them; None if one of them is not a class."""
    if decision == "as_stored":
        return entries if all(0 <= entry.label < len(classes) for entry in entries) else None
    named = [names_of(classes).index(str(entry.label)) for entry in entries]
    if None in named:
        return None
    return [entry._replace(label=label) for entry, label in zip(entries, named, strict=True) if label is not None]


def _confirm(
    version: int, back: dict[str, list[GivenLabel]], candidates: dict[str, LabelCandidate], cache: VersionCache
) -> Work[None]:
    changes, arrivals, past = {}, {}, []
    for id_, entries in back.items():
        first, last = entries[0], entries[-1]
        changes[version, id_] = LabelChange(candidates[id_], first.label, last.label)
        arrivals[id_] = Arrival(first.given_ms, last.import_id, last.given_ms if len(entries) > 1 else None)
        past += [(version, id_, *entry[:3]) for entry in entries[:-1]]
    yield from write_changes(changes, cache, arrivals)
    if past:
        yield Insert("replaced", GIVEN, past)


def settle_held(
    selection: LabelSelection, decision: Meaning, cache: VersionCache, *, dry_run: bool
) -> Work[SettleCounts]:
    """Settle the doubtful labels that wait for their predictions, by the names of the model's newest version."""
    if not dry_run:
        yield Lock("SELECT key FROM models ORDER BY key FOR UPDATE")
    where, arguments = condition(selection, "held", "held.given_ms", 1)
    rows = yield Query(
        f"SELECT model, id, label FROM held WHERE doubtful = 1 AND {where} ORDER BY model, id", tuple(arguments)
    )
    classes = {cache.models[version.model]: version.classes for version in cache.versions.values()}
    wanted = None if selection.model is None else cache.models.get(selection.model)
    settled, gone, unknown = list[tuple[int, str, str]](), list[tuple[int, str]](), 0
    for model, id_, text in rows:
        if selection.model is not None and model != wanted:
            continue
        label, names = int(json.loads(text)), classes[model]
        name = str(label) if decision == "as_names" else names[label] if 0 <= label < len(names) else ""
        if decision == "void":
            gone.append((model, id_))
        elif name in names:
            settled.append((model, id_, json.dumps(name)))
        else:
            unknown += 1
    if not dry_run:
        yield ExecuteMany("UPDATE held SET label = $3, doubtful = 0 WHERE model = $1 AND id = $2", settled)
        yield ExecuteMany("DELETE FROM held WHERE model = $1 AND id = $2", gone)
    return SettleCounts(len(settled), len(gone), unknown)


def void(version: int, what: Voiding, *, dry_run: bool) -> Work[VoidCounts]:
    """Remove the selected doubtful labels. Return the number of answers that have none left."""
    if not dry_run:
        yield lock_of(version)
    where, arguments = condition(what.selection, "doubtful", "doubtful.given_ms", 2)
    count = f"SELECT count(DISTINCT prediction) FROM doubtful WHERE version = $1 AND {_WAITING}"
    ((before,),) = yield Query(count, (version,))
    ((after,),) = yield Query(f"{count} AND ({where}) IS NOT TRUE", (version, *arguments))
    counts = VoidCounts(removed=int(before - after))
    if not dry_run and counts.labels:
        yield Query(f"DELETE FROM doubtful WHERE version = $1 AND {where}", (version, *arguments))
        yield record_voiding(version, replace(what, counts=counts))
    return counts


def settlements(version: int) -> Work[list[Settlement]]:
    """Return the settlements of a version's labels, in their order."""
    rows = yield Query(
        "SELECT decision, at_ms, who, why, sum(labels) FROM settlements WHERE version = $1"
        " GROUP BY decision, at_ms, who, why ORDER BY at_ms",
        (version,),
    )
    return [Settlement(decision, at_ms, who, why, int(labels)) for decision, at_ms, who, why, labels in rows]
