"""The way of old answers to the archive. A row is in exactly one place at any time.

1. `move` takes old answers, with their labels, out of the live tables and into `archiving`, in small transactions.
   Each row belongs to a file: one version, one day. From then on nothing can change it.
2. `seal` ends the growth of files. What a sealed file holds is decided, so that every attempt writes the same object.
3. `finish` notes that a file was written, read back and compared. It is the only step after which rows are removed.
4. `clear` removes the rows of finished files.

A process that is killed between any two steps leaves the rows in `archiving`, and the next round goes on from there.
`copy` reads what is not in the archive yet, or not verified there, for reports on store and archive together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from service.store.rows import ArchiveFile, ArchiveState, HeldLabel, StoredPrediction, Version, decoding
from service.store.work import retention
from service.store.work.reading import exported_ours, exported_own, stored_prediction
from service.store.work.statements import Lock, Query, Work
from service.store.work.versions import VersionCache, load_versions
from trueodds.bundle.contents import shadowed_by
from trueodds.sums.hours import HOUR_MS

DAY_MS = 24 * HOUR_MS
OPEN, SEALED, FINISHED, CLEARED = range(4)
"""States of a file."""
ROW_BYTES = 200
"""Estimated bytes of a prediction in a file, beside 8 for each class. A stored logit has 4."""
COPY_ROWS = 10_000
"""Largest number of answers that a copy reads at once."""
COPY_BYTES = 4 << 20
"""Largest number of bytes of their logits."""

_COLUMNS = (
    "created_ms, predicted, raw_confidence, confidence, logits, tag, propensity, label, labelled_ms, corrected_ms,"
    " import_id, confidence_source, judge_label, members"
)
_MOVE = (
    f"INSERT INTO archiving (file, id, {_COLUMNS}) SELECT CAST($1 AS BIGINT), p.id, p.created_ms, p.predicted,"
    " p.raw_confidence, p.confidence, p.logits, p.tag, p.propensity, l.label,"
    " coalesce(l.corrected_ms, CASE WHEN l.assumed IS NULL THEN l.arrived_ms END), l.corrected_ms, l.import_id,"
    " p.confidence_source, j.label, o.members FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND"
    " l.version = p.version LEFT JOIN judge_labels j ON j.prediction = p.id AND j.version = p.version"
    " LEFT JOIN observed_sets o ON o.prediction = p.id AND o.version = p.version"
    " WHERE p.id = ANY($2) AND p.version = $3 AND (l.sequence IS NULL OR l.sequence <="
    " (SELECT coalesce(min(s.sequence), l.sequence) FROM states s WHERE s.version = l.version))"
    " AND NOT EXISTS (SELECT 1 FROM maturing w WHERE w.version = p.version AND w.prediction = p.id)"
    " RETURNING id, label"
)


def move(before_ms: int, after: str, limit: int, file_bytes: int, *, own: bool) -> Work[tuple[int, str]]:
    """Move up to `limit` old answers to files. Return their number, and the last id as `retention.prune` does.

    Args:
        before_ms: Answers from before this time are old.
        after: The last id of the call before.
        limit: Largest number of answers.
        file_bytes: Estimated size from which a file is sealed.
        own: Whether these are callers' own ids.
    """
    rows = yield from retention.old(before_ms, after, limit, own=own)
    moved = 0
    for model in sorted({row.model for row in rows}):
        yield retention.lock_of_model(model)
        places = sorted({(row.version, row.created_ms // DAY_MS) for row in rows if row.model == model})
        for version, day in places:
            ids = [row.id for row in rows if (row.version, row.created_ms // DAY_MS) == (version, day)]
            ((size,),) = yield Query(
                "SELECT coalesce(max(length(logits)), 0) FROM predictions WHERE id = ANY($1) AND version = $2",
                (ids, version),
            )
            most = max(1, file_bytes // (ROW_BYTES + 2 * size))
            for first in range(0, len(ids), most):
                moved += yield from _take(model, version, day, ids[first : first + most], most)
    return moved, rows[-1].id if len(rows) == limit else ""


def _take(model: int, version: int, day: int, ids: list[str], most: int) -> Work[int]:
    """Move answers of a version and a day to their file, and seal it from `most` answers on. Return their number."""
    # Under the model's lock, a label that came just before keeps its answer here.
    file = yield from _open_file(version, day, ids)
    taken = yield Query(_MOVE, (file, ids, version))
    labelled = sum(label is not None for _, label in taken)
    yield Query(
        "UPDATE archive_files SET answers = answers + $2, labelled = labelled + $3, state = CASE WHEN"
        " answers + $2 >= $4 THEN 1 ELSE 0 END WHERE key = $1",
        (file, len(taken), labelled, most),
    )
    yield from retention.remove_answers(model, [id_ for id_, _ in taken])
    return len(taken)


def _open_file(version: int, day: int, ids: list[str]) -> Work[int]:
    """Return the key of the file that a version's answers of a day go to, locked until the transaction ends.

    A file that has one of the ids is sealed: a caller has sent it again after its answer had moved.
    """
    where = "WHERE version = $1 AND day = $2 AND state = 0"
    yield Lock(f"SELECT key FROM archive_files {where} FOR UPDATE", (version, day))  # `seal` waits, or was first
    yield Query(
        f"UPDATE archive_files SET state = 1 {where} AND EXISTS (SELECT 1 FROM archiving a"
        " WHERE a.file = archive_files.key AND a.id = ANY($3))",
        (version, day, ids),
    )
    rows = yield Query(f"SELECT key FROM archive_files {where} ORDER BY key LIMIT 1", (version, day))
    if not rows:
        rows = yield Query(
            "INSERT INTO archive_files (version, day, answers, labelled, state) VALUES ($1, $2, 0, 0, 0) RETURNING key",
            (version, day),
        )
    return int(rows[0][0])


def seal() -> Work[None]:
    """End the growth of all files. An empty one, whose answers all got labels just before, is removed."""
    yield Query("DELETE FROM archive_files WHERE state = 0 AND answers = 0")
    yield Query("UPDATE archive_files SET state = 1 WHERE state = 0")


def waiting_files() -> Work[list[ArchiveFile]]:
    """Return the files that wait for the archive, the oldest day first."""
    rows = yield Query(
        "SELECT f.key, m.name, v.version, f.day, f.answers FROM archive_files f JOIN versions v"
        " ON v.key = f.version JOIN models m ON m.key = v.model WHERE f.state = 1 ORDER BY f.day, f.key"
    )
    return [ArchiveFile(*row) for row in rows]


def rows_of(file: int, after: str, limit: int) -> Work[list[StoredPrediction]]:
    """Read the first `limit` answers of a file with ids above `after`."""
    rows = yield Query(
        "SELECT a.id, m.name, v.version, a.created_ms, a.predicted, a.raw_confidence, a.confidence, a.logits, a.tag,"
        " a.propensity, a.label, a.labelled_ms, a.corrected_ms, a.import_id, NULL, a.confidence_source,"
        " a.judge_label, a.members FROM archiving a"
        " JOIN archive_files f ON f.key = a.file JOIN versions v ON v.key = f.version JOIN models m ON m.key = v.model"
        " WHERE a.file = $1 AND a.id > $2 ORDER BY a.id LIMIT $3",
        (file, after, limit),
    )
    return [stored_prediction(row) for row in rows]


def waits(file: ArchiveFile) -> Work[bool]:
    """Return whether no process has finished a sealed file yet."""
    rows = yield Query("SELECT key FROM archive_files WHERE key = $1 AND state = 1", (file.key,))
    return bool(rows)


def finish(file: int, answers: int, at_ms: int) -> Work[bool]:
    """Note that a file with this number of answers is in the archive. Return whether this call did so."""
    yield Lock("SELECT key FROM archive_files WHERE key = $1 FOR UPDATE", (file,))
    ((there,),) = yield Query("SELECT count(*) FROM archiving WHERE file = $1", (file,))
    rows = yield Query(
        "UPDATE archive_files SET state = 2, archived_ms = $3 WHERE key = $1 AND state = 1 AND answers = $2 AND"
        " $4 = $2 RETURNING key",
        (file, answers, at_ms, there),
    )
    return bool(rows)


def clear(limit: int) -> Work[int]:
    """Remove up to `limit` rows of finished files. Return 0 when nothing is left.

    A process that finds rows which another one is just removing gets fewer than it asked for, although others are left.
    """
    files = yield Query("SELECT key FROM archive_files WHERE state = 2 ORDER BY key LIMIT 1")
    if not files:
        return 0
    ((file,),) = files
    rows = yield Query(
        "DELETE FROM archiving WHERE file = $1 AND id IN (SELECT id FROM archiving WHERE file = $1 ORDER BY id"
        " LIMIT $2) RETURNING id",
        (file, limit),
    )
    if len(rows) < limit:
        yield Query(
            "UPDATE archive_files SET state = 3 WHERE key = $1"
            " AND NOT EXISTS (SELECT 1 FROM archiving WHERE file = $1)",
            (file,),
        )
    return max(len(rows), 1)


def note_problem(problem: str) -> Work[None]:
    """Count a failed round and keep its reason; an empty one says that the archive works."""
    if problem:
        yield Query("UPDATE archive_problems SET failures = failures + 1, problem = $1", (problem,))
    else:
        yield Query("UPDATE archive_problems SET problem = NULL WHERE problem IS NOT NULL")


def problem() -> Work[str | None]:
    """Read the reason why the last round failed; None if it did not."""
    ((reason,),) = yield Query("SELECT problem FROM archive_problems")
    return None if reason is None else str(reason)


def state() -> Work[ArchiveState]:
    """Read what the archive has got, what waits for it, and the reason of the last failure."""
    ((files, answers, labelled, last_ms),) = yield Query(
        "SELECT count(*), coalesce(sum(answers), 0), coalesce(sum(labelled), 0), max(archived_ms) FROM archive_files"
        " WHERE state >= 2"
    )
    ((waiting,),) = yield Query("SELECT coalesce(sum(answers), 0) FROM archive_files WHERE state < 2")
    ((failures, problem),) = yield Query("SELECT failures, problem FROM archive_problems")
    return ArchiveState(int(files), int(answers), int(labelled), last_ms, int(waiting), int(failures), problem)


class ArchivedFile(NamedTuple):
    """A file that the store has written to its archive."""

    key: int
    day: int
    answers: int


class Copied(NamedTuple):
    """Content of a copy beside the answers."""

    files: dict[str, list[ArchivedFile]]
    """Files in the archive, by version."""
    archive: str
    """The store's name in the archive; "" if it has none."""
    held: list[HeldLabel]
    """Labels that wait for their answers, without doubtful ones. Those of a shadow are those of its model."""


def versions_of_all() -> Work[list[tuple[str, str]]]:
    """Read model and version of all versions."""
    rows = yield Query("SELECT m.name, v.version FROM models m JOIN versions v ON v.model = m.key ORDER BY v.key")
    return [(model, version) for model, version in rows]


def copy(
    model: str, version: str | None, take: Callable[[Version, list[StoredPrediction]], None], latest_ms: int
) -> Work[Copied]:
    """Read the answers of a model with their labels, block by block, in one transaction.

    Answers that wait for the archive are among them, unless their file is verified: then they are there.

    Args:
        model: The model.
        version: Its version. None: all of them.
        take: Receives the answers. It is called for each version at least once.
        latest_ms: A time after that of all answers.
    """
    cache = yield from load_versions(VersionCache())
    files: dict[str, list[ArchivedFile]] = {}
    for key, of in cache.versions.items():
        if of.model != model or version not in (None, of.version):
            continue
        limit = min(COPY_ROWS, max(COPY_BYTES // (4 * len(of.classes)), 1))
        take(of, [])
        last, times = "", (0, latest_ms)
        while rows := (yield from exported_ours(key, times, last, limit, logits=True)):
            take(of, rows)
            last = rows[-1].id
        place = (-1, "")
        while rows := (yield from exported_own(key, times, place, limit, logits=True)):
            take(of, rows)
            place = rows[-1].created_ms, rows[-1].id
        files[of.version] = []
        for file, day, answers, state in (
            yield Query("SELECT key, day, answers, state FROM archive_files WHERE version = $1 ORDER BY key", (key,))
        ):
            if state >= FINISHED:
                files[of.version].append(ArchivedFile(file, day, answers))
                continue
            last = ""
            while rows := (yield from rows_of(file, last, limit)):
                take(of, rows)
                last = rows[-1].id
    names = yield Query("SELECT value FROM secrets WHERE name = 'archive'")
    held = yield Query(
        "SELECT h.id, h.label, h.given_ms, h.import_id FROM held h JOIN models m ON m.key = h.model"
        " WHERE m.name = $1 AND h.doubtful = 0 ORDER BY h.id",
        (shadowed_by(model),),
    )
    with decoding("its table held"):
        labels = [HeldLabel(model, id_, json.loads(label), *given) for id_, label, *given in held]
    return Copied(files, names[0][0] if names else "", labels)
