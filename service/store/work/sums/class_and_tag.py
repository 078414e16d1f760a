"""Answers of one class and one tag, or of a rare tag, from their rows: there would be too many sums to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from service.store.rows import Unit, Version, decoding
from service.store.work.statements import Query, Work
from service.store.work.sums.deltas import (
    BY_CLASS,
    BY_TAG,
    OTHER_KEY,
    OTHER_TAGS,
    POSITIVE,
    TOTAL,
    Deltas,
    answer_deltas,
    label_deltas,
)
from service.store.work.sums.period_sums import UNIT_OF, PeriodSums, by_period, check_number, start_ms
from service.store.work.sums.queries import MergedTotals, names_of, sums
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import HOUR_MS, Hours
from trueodds.sums.positive import PositiveClass
from trueodds.texts import plural

MOST_ROWS = 100_000
"""Rows of the class, or of the tag, whichever has fewer, that one read takes: 0.4 s."""
MOST_SCANNED = 1_000_000
"""Answers of the version that may lie in the window: 0.5 s in SQLite, for no index leads to a class or a tag."""

COLUMNS = "p.created_ms, p.confidence, p.predicted, p.tag_key, l.label, l.nll, l.brier"
_ROWS = (
    f"SELECT {COLUMNS} FROM predictions p"
    " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE p.version = $1 AND p.{column} = $2 AND p.created_ms >= $3 AND p.created_ms < $4 AND {which}"
)
# Our ids begin with their time; what a shadow says has the id of the answer, which was before.
_OURS, _OWN = "p.digest IS NULL AND p.id > $5 AND p.id < $6", "p.digest IS NOT NULL"
_LATEST_HOUR = 2**47 // HOUR_MS


class RowSums:
    """Sums of rows, on all 3,000 cells."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        """Of what `read` gives; what is not known (None) becomes NaN."""
        kinds = (np.int64, np.float64, np.int64, np.int64, np.float64, np.float64, np.float64)
        parts = zip(*rows, strict=True) if rows else [()] * len(kinds)
        self._columns: list[Any] = [np.array(part, kind) for part, kind in zip(parts, kinds, strict=True)]

    def total(self, positive: PositiveClass | None = None) -> AnswerSums:
        """Of all rows; by p(positive) where a positive class is given."""
        kind = TOTAL if positive is None else POSITIVE
        return PeriodSums.of(self.deltas(positive), kind).stored(kind)[0]

    def periods(self, name: Unit, most: int) -> list[tuple[int, AnswerSums]]:
        """The start of each period with rows, in Unix milliseconds, and its sums.

        Raises:
            ValueError: more periods than `most`.
        """
        unit = UNIT_OF[name]
        parts = dict(by_period(self.deltas(None), unit))
        check_number(len(parts), name, most)
        sums = {period: PeriodSums.of(part, TOTAL).stored(TOTAL)[0] for period, part in parts.items()}
        return [(start_ms(period, unit), part) for period, part in sums.items()]

    def deltas(self, positive: PositiveClass | None) -> Deltas:
        """Those that the rows once added to the sums."""
        created_N, confidence_N, predicted_N, tag_N, label_N, *_ = self._columns
        labelled_N = ~np.isnan(label_N)
        created_L, confidence_L, predicted_L, tag_L, label_L, nll_L, brier_L = (c[labelled_N] for c in self._columns)
        correct_L = label_L == predicted_L
        if positive is not None:
            confidence_N = positive.probability_of_top(confidence_N, predicted_N)
            of_labels = positive.rows_of_top(confidence_L, predicted_L, label_L, nll_L)
            confidence_L, correct_L, nll_L, brier_L = of_labels
        answers = answer_deltas(created_N, confidence_N, predicted_N, tag_N)
        columns = created_L, confidence_L, predicted_L, tag_L, correct_L, nll_L, brier_L
        return Deltas(answers, label_deltas(*columns, positive=positive is not None))


def read_both(
    version: Version, key: int, class_: str, tag: str, hours: Hours, *, totals: MergedTotals
) -> Work[RowSums]:
    """Sum the answers of a predicted class that have a tag, in the hours [first, end).

    Raises:
        ValueError: as `read` and `rows_of_rare`.
    """
    predicted = version.classes.index(class_)
    rare = yield from rows_of_rare(key, tag, hours, totals=totals)
    if rare is not None:
        return _summed([row for row in rare if row[2] == predicted])
    numbers = {name: number for number, name in (yield from names_of(version, key, "tag")).items()}
    return _summed((yield from read(key, predicted, numbers[tag], hours, totals=totals)))


def read_rare(version: int, tag: str, hours: Hours, *, totals: MergedTotals) -> Work[RowSums | None]:
    """Sum the answers with a tag that has no sums of its own; None of another tag. Raises as `rows_of_rare`."""
    rows = yield from rows_of_rare(version, tag, hours, totals=totals)
    return None if rows is None else _summed(rows)


def _summed(rows: Sequence[Sequence[Any]]) -> RowSums:
    with decoding("its table labels or predictions"):
        return RowSums(rows)


def read(version: int, predicted: int, tag: int, hours: Hours, *, totals: MergedTotals) -> Work[list[tuple[Any, ...]]]:
    """Rows of the predictions of a class, by its index, and a tag, by its key, in the hours [first, end).

    All rows of the class or of the tag are read, whichever has fewer, and held against its sums: what retention or a
    deletion took is missing in the rows, but not there.

    Raises:
        ValueError: too many rows to read, or not all of them are there.
    """
    whole = (yield from sums(version, TOTAL, hours, totals=totals))[0]
    groups: list[tuple[AnswerSums, str, int]] = []
    for kind, column, number in ((BY_CLASS, "predicted", predicted), (BY_TAG, "tag_key", tag)):
        by_group = yield from sums(version, kind, hours, number, totals=totals)
        groups.append((by_group.get(number, AnswerSums.zero()), column, number))
    known, column, number = min(groups, key=lambda group: group[0].answers)
    if not known.answers:
        return []
    what = "class" if column == "predicted" else "tag"
    if whole.answers > MOST_SCANNED or known.answers > MOST_ROWS:
        raise ValueError(
            f"the window holds {plural(whole.answers, 'answer')}, {known.answers:,} of that {what}; class and tag"
            f" together are counted from stored predictions, of at most {MOST_SCANNED:,} and {MOST_ROWS:,}"
        )
    first, end = hours[0] or 0, min(hours[1] or _LATEST_HOUR, _LATEST_HOUR)
    times = first * HOUR_MS, end * HOUR_MS
    ids = f"{max(times[0] - HOUR_MS, 0):012x}", f"{times[1]:012x}"
    ours = yield Query(_ROWS.format(column=column, which=_OURS), (version, number, *times, *ids))
    own = yield Query(_ROWS.format(column=column, which=_OWN), (version, number, *times))
    rows = [tuple(row) for row in (*ours, *own)]
    labelled = sum(row[4] is not None for row in rows)
    if (len(rows), labelled) != (known.answers, known.labelled.n):
        raise ValueError(
            f"of {plural(known.answers, 'answer')} of that {what} in the window, {known.labelled.n:,} with labels, only"
            f" {len(rows):,} and {labelled:,} are still stored (retention, or a deletion, took the others); class and"
            " tag together are counted from stored predictions"
        )
    other = (3, tag) if column == "predicted" else (2, predicted)
    return [row for row in rows if row[other[0]] == other[1]]


def rows_of_rare(version: int, tag: str, hours: Hours, *, totals: MergedTotals) -> Work[list[tuple[Any, ...]] | None]:
    """Rows of the predictions of a tag that has no sums of its own, in the hours [first, end); None of another tag.

    All such tags share one sum, which is held against the number of their rows.

    Raises:
        ValueError: too many rows to read or to count, or not all of them are there.
    """
    if tag in ("", OTHER_TAGS) or (yield Query("SELECT 1 FROM tags WHERE version = $1 AND name = $2", (version, tag))):
        return None
    by_group = yield from sums(version, BY_TAG, hours, OTHER_KEY, totals=totals)
    known = by_group[OTHER_KEY].answers if OTHER_KEY in by_group else 0
    if not known:
        return []
    times = (hours[0] or 0) * HOUR_MS, min(hours[1] or _LATEST_HOUR, _LATEST_HOUR) * HOUR_MS
    where = f"p.version = $1 AND p.tag_key = {OTHER_KEY} AND p.created_ms >= $2 AND p.created_ms < $3"
    if known > MOST_SCANNED:
        raise ValueError(
            f"the window holds {known:,} answers of tags without sums of their own; such a tag is counted from stored"
            f" predictions, of at most {MOST_SCANNED:,}"
        )
    ((stored,),) = yield Query(f"SELECT count(*) FROM predictions p WHERE {where}", (version, *times))
    if stored != known:
        raise ValueError(
            f"of {plural(known, 'answer')} of tags without sums of their own in the window, only {stored:,} are still"
            " stored (retention, or a deletion, took the others); such a tag is counted from stored predictions"
        )
    rows = yield Query(
        f"SELECT {COLUMNS} FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
        f" WHERE {where} AND p.tag = $4 LIMIT $5",
        (version, *times, tag, MOST_ROWS + 1),
    )
    if len(rows) > MOST_ROWS:
        raise ValueError(
            f"the window holds more than {MOST_ROWS:,} answers of the tag; until it has sums of its own (within the"
            " hour) it is counted from stored predictions"
        )
    return [tuple(row) for row in rows]


def is_rare(version: int, tag: str) -> Work[bool]:
    """Whether any answer has a tag that has no sums of its own."""
    where = f"version = $1 AND tag_key = {OTHER_KEY} AND tag = $2"
    return bool((yield Query(f"SELECT 1 FROM predictions WHERE {where} LIMIT 1", (version, tag))))
