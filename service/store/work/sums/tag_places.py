"""Own sums for tags that become frequent. The first hundred tags of a version get theirs on arrival.

Nobody waits for this: until a tag has its own sums, its answers are counted from their rows (`class_and_tag`). Each of
these rows is then subtracted from the shared sums of the other tags and added to the tag's own sums.
"""

from __future__ import annotations

from service.store.rows import decoding
from service.store.work.statements import Insert, Query, Work, lock_of
from service.store.work.sums import deltas
from service.store.work.sums.class_and_tag import COLUMNS, RowSums
from service.store.work.sums.deltas import MAX_TAGS, MOST_TAGS, OTHER_KEY, OTHER_TAGS
from service.store.work.sums.queries import MergedTotals, sums
from trueodds.sums.positive import PositiveClass

MOST_COUNTED = 5_000_000
"""Largest number of answers with other tags that are counted: 1 s of reading in SQLite."""
ADMITTED = 20
"""Number of tags that get their own sums in one round."""


def frequent(version: int, totals: MergedTotals) -> Work[list[str]]:
    """Return the tags whose answers should move to their own sums.

    These are tags more frequent than the rarest tag with its own sums. They also include tags that have their own sums,
    but whose answers another worker has stored with the shared ones because it did not know.
    """
    kept = dict((yield Query("SELECT name, key FROM tags WHERE version = $1", (version,))))
    if len(kept) < MAX_TAGS:
        return []
    of_others = f"FROM predictions WHERE version = $1 AND tag_key = {OTHER_KEY}"
    missed = yield Query(f"SELECT DISTINCT tag {of_others} AND tag = ANY($2)", (version, list(kept)))
    tags = [tag for (tag,) in missed]
    ((number,),) = yield Query(f"SELECT count(*) FROM (SELECT 1 {of_others} LIMIT $2) s", (version, MOST_COUNTED + 1))
    if number > MOST_COUNTED or len(kept) >= MOST_TAGS:
        return tags
    counted = yield Query(
        f"SELECT tag, count(*) AS answers {of_others} AND tag <> $2 GROUP BY tag ORDER BY answers DESC, tag LIMIT $3",
        (version, OTHER_TAGS, ADMITTED),
    )
    known = yield from sums(version, deltas.BY_TAG, (None, None), totals=totals)
    least = min(known[key].answers if key in known else 0 for key in kept.values())
    fresh = [tag for tag, answers in counted if tag not in kept and answers > least]
    return tags + fresh[: MOST_TAGS - len(kept)]


def admit(version: int, tag: str, positive: PositiveClass | None, limit: int) -> Work[int]:
    """Move the first `limit` answers of a tag to its own sums, which it gets if necessary. Return their number."""
    yield lock_of(version)
    kept = dict((yield Query("SELECT name, key FROM tags WHERE version = $1", (version,))))
    if tag not in kept:
        if len(kept) >= MOST_TAGS:
            return 0
        kept[tag] = max(OTHER_KEY, *kept.values()) + 1
        yield Insert("tags", ("version", "key", "name"), [(version, kept[tag], tag)])
    rows = yield Query(
        f"SELECT {COLUMNS}, p.id FROM predictions p"
        " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
        f" WHERE p.version = $1 AND p.tag = $2 AND p.tag_key = {OTHER_KEY} LIMIT $3",
        (version, tag, limit),
    )
    if not rows:
        return 0
    with decoding("its table labels or predictions"):
        moved = RowSums([row[:-1] for row in rows])
    kinds: dict[tuple[int, int], PositiveClass | None] = {(deltas.ANSWERS, deltas.LABELS): None}
    if positive is not None:
        kinds[deltas.POSITIVE_ANSWERS, deltas.POSITIVE_LABELS] = positive
    for (answers, labels), of in kinds.items():
        before, after = moved.deltas(of), moved.deltas(of)
        for part in (before.answers, before.labels):
            part["sign"] = -1
        for part in (after.answers, after.labels):
            part["tag"] = kept[tag]
        yield deltas.insert_of(version, answers, before.answers, after.answers)
        if len(after.labels):
            yield deltas.insert_of(version, labels, before.labels, after.labels)
    yield Query(
        "UPDATE predictions SET tag_key = $3 WHERE version = $1 AND id = ANY($2)",
        (version, [row[-1] for row in rows], kept[tag]),
    )
    return len(rows)
