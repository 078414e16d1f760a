"""Upgrade of rows, after the tables.

From schema 6 (PostgreSQL: 5) it adds checksums and signs to deltas, and finds doubtful labels. From schema 9 too, it
fills in the first label of each labelled answer. From schema 10 no row changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.store.label_rules import names_of
from service.store.rows import decoding
from service.store.work.maturing import GivenLabel
from service.store.work.statements import ExecuteMany, Query, Work
from service.store.work.sums.deltas import ANSWER, ANSWERS, LABEL, POSITIVE_ANSWERS, TOTAL, seal_rows
from service.store.work.sums.queries import MergedTotals, sums
from service.store.work.versions import VersionCache, load_versions
from service.store.work.voiding import Restart, first_of, in_order, move_out

_ANSWER = np.dtype([(name, kind) for name, kind, *_ in ANSWER.descr if name != "sign"])
_LABEL = np.dtype([*_ANSWER.descr, *LABEL.descr[len(_ANSWER.descr) :]])


BLOCK = 2000
"""Corrected labels that are read at once."""
SIGNED = 9
"""Schema from which deltas have checksums and signs, and no label is doubtful."""
FIRST_LABELS = 10
"""Schema from which labels have `first_label`."""


class DoubtfulCounts(NamedTuple):
    """Labels of a version that may have been misread."""

    labels: int
    """Labels that are in no number until they are settled."""
    only_sums: int
    """Labels that stay in the sums: retention has removed their rows, so their share is unknown."""


def upgrade(restart: Restart, before: int) -> Work[dict[tuple[str, str], DoubtfulCounts]]:
    """Convert the rows of a store with the schema `before`. Return the doubtful labels by model and version."""
    if before >= FIRST_LABELS:
        return {}
    yield from _fill_first_labels()
    if before >= SIGNED:
        return {}
    yield from _seal_deltas()
    return (yield from _mark((yield from load_versions(VersionCache())), restart))


def _fill_first_labels() -> Work[None]:
    """Fill in `first_label`: from the labels that were replaced, where a label was corrected.

    It stays unknown where those labels contradict `first_correct`, which only damage explains.
    """
    yield Query("UPDATE labels SET first_label = label WHERE corrected_ms IS NULL")
    version, sequence = 0, 0
    while True:
        rows = yield Query(
            "SELECT version, sequence, prediction, label, corrected_ms, predicted, first_correct, counted_ms"
            " FROM labels WHERE corrected_ms IS NOT NULL AND (version > $1 OR version = $1 AND sequence > $2)"
            " ORDER BY version, sequence LIMIT $3",
            (version, sequence, BLOCK),
        )
        if not rows:
            return
        replaced: dict[tuple[int, str], list[GivenLabel]] = {}
        for of, id_, *entry in (
            yield Query(
                "SELECT version, prediction, label, given_ms, import_id, key FROM replaced WHERE prediction = ANY($1)"
                " ORDER BY key",
                (sorted({row[2] for row in rows}),),
            )
        ):
            replaced.setdefault((of, id_), []).append(GivenLabel(*entry))
        filled = []
        for version, sequence, id_, label, corrected_ms, predicted, first_correct, counted_ms in rows:
            every = [*replaced.get((version, id_), []), GivenLabel(label, corrected_ms, None)]
            first = first_of(in_order(every, counted_ms), counted_ms).label
            if (first == predicted) != bool(first_correct):
                if not first_correct:
                    continue
                first = predicted
            filled.append((version, sequence, first))
        yield ExecuteMany("UPDATE labels SET first_label = $3 WHERE version = $1 AND sequence = $2", filled)


def _seal_deltas() -> Work[None]:
    rows = yield Query("SELECT key, version, kind, data FROM moves")
    after = []
    for key, version, kind, data in rows:
        of_answers = kind in (ANSWERS, POSITIVE_ANSWERS)
        with decoding(f"row {key} of its table moves"):
            before_N = np.frombuffer(bytes(data), _ANSWER if of_answers else _LABEL)
        rows_N = np.ones(len(before_N), ANSWER if of_answers else LABEL)
        for name in before_N.dtype.names or ():
            rows_N[name] = before_N[name]
        after.append((key, seal_rows(version, kind, rows_N)))
    yield ExecuteMany("UPDATE moves SET data = $2 WHERE key = $1", after)


def is_ambiguous(classes: tuple[str, ...]) -> bool:
    """Return whether an integer is the index of one class and the name of another: 1 for the classes "1" to "5"."""
    names = names_of(classes)
    return any(names.index(str(index)) not in (None, index) for index in range(len(classes)))


def _mark(cache: VersionCache, restart: Restart) -> Work[dict[tuple[str, str], DoubtfulCounts]]:
    """Take all labels of ambiguous versions out of the log and the sums. Return their number by model and version.

    Held labels that were sent as integers are marked in their table.
    """
    marked: dict[tuple[str, str], DoubtfulCounts] = {}
    for version, row in cache.versions.items():
        if not is_ambiguous(row.classes):
            continue
        yield Query(
            "UPDATE held SET doubtful = 1 WHERE model = $1 AND label NOT LIKE '\"%'", (cache.model_of[version],)
        )
        count = yield from move_out(version, "doubtful", cache, restart)
        left = (yield from sums(version, TOTAL, (None, None), totals=MergedTotals()))[0].labelled.n
        if count or left:
            marked[row.model, row.version] = DoubtfulCounts(count, int(left))
    return marked
