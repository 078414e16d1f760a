"""Upgrade from schema 6 (PostgreSQL: 5) to 8: adds checksums and signs to deltas, and finds doubtful labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.store.label_rules import names_of
from service.store.rows import decoding
from service.store.work.statements import ExecuteMany, Query, Work
from service.store.work.sums.deltas import ANSWER, ANSWERS, LABEL, POSITIVE_ANSWERS, TOTAL, seal_rows
from service.store.work.sums.queries import MergedTotals, sums
from service.store.work.versions import VersionCache, load_versions
from service.store.work.voiding import Restart, move_out

_ANSWER = np.dtype([(name, kind) for name, kind, *_ in ANSWER.descr if name != "sign"])
_LABEL = np.dtype([*_ANSWER.descr, *LABEL.descr[len(_ANSWER.descr) :]])


class DoubtfulCounts(NamedTuple):
    """Labels of a version that may have been misread."""

    labels: int
    """Labels that are in no number until they are settled."""
    only_sums: int
    """Labels that stay in the sums: retention has removed their rows, so their share is unknown."""


def upgrade(restart: Restart) -> Work[dict[tuple[str, str], DoubtfulCounts]]:
    """Convert the rows after the tables are converted. Return the doubtful labels by model and version."""
    yield from _seal_deltas()
    return (yield from _mark((yield from load_versions(VersionCache())), restart))


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
