"""Sums of one class and one tag, or of a rare tag, computed from rows: too many to keep them all."""

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
"""Largest number of rows of the class or the tag (the smaller one) that one read uses: 0.4 s."""
MOST_SCANNED = 1_000_000
"""Largest number of the version's answers in the window: 0.5 s in SQLite, which has no index on class and tag."""

COLUMNS = "p.created_ms, p.confidence, p.predicted, p.tag_key, l.label, l.nll, l.brier"
_ROWS = (
    f"SELECT {COLUMNS} FROM predictions p"
    " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE p.version = $1 AND p.{column} = $2 AND p.created_ms >= $3 AND p.created_ms < $4 AND {which}"
)
# Ids of the service begin with their time. A shadow's answer has the id of the answer that it shadows, which is older.
_OURS, _OWN = "p.digest IS NULL AND p.id > $5 AND p.id < $6", "p.digest IS NOT NULL"
_LATEST_HOUR = 2**47 // HOUR_MS


class RowSums:
    """Sums of rows on all 3,000 cells."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take rows as `read` returns them. Unknown values (None) become NaN."""
        kinds = (np.int64, np.float64, np.int64, np.int64, np.float64, np.float64, np.float64)
        parts = zip(*rows, strict=True) if rows else [()] * len(kinds)
        self._columns: list[Any] = [np.array(part, kind) for part, kind in zip(parts, kinds, strict=True)]

    def total(self, positive: PositiveClass | None = None) -> AnswerSums:
        """Return the sums of all rows; by p(positive) if a positive class is given."""
        kind = TOTAL if positive is None else POSITIVE
        return PeriodSums.of(self.deltas(positive), kind).answer_sums(kind)[0]

    def periods(self, name: Unit, most: int) -> list[tuple[int, AnswerSums]]:
        """Return the start of each period with rows, in Unix milliseconds, and its sums.

        Raises:
            ValueError: There are more periods than `most`.
        """
        unit = UNIT_OF[name]
        parts = dict(by_period(self.deltas(None), unit))
        check_number(len(parts), name, most)
        sums = {period: PeriodSums.of(part, TOTAL).answer_sums(TOTAL)[0] for period, part in parts.items()}
        return [(start_ms(period, unit), part) for period, part in sums.items()]

    def deltas(self, positive: PositiveClass | None) -> Deltas:
        """Return the deltas that the rows have added to the sums."""
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
    """Sum the answers with a predicted class and a tag, in the hours [first, end).

    Raises:
        ValueError: See `read` and `rows_of_rare`.
    """
    predicted_class = version.classes.index(class_)
    rare = yield from rows_of_rare(key, tag, hours, totals=totals)
    if rare is not None:
        return _sums_of([row for row in rare if row[2] == predicted_class])
    numbers = {name: number for number, name in (yield from names_of(version, key, "tag")).items()}
    return _sums_of((yield from read(key, predicted_class, numbers[tag], hours, totals=totals)))


def read_rare(version: int, tag: str, hours: Hours, *, totals: MergedTotals) -> Work[RowSums | None]:
    """Sum the answers with a tag that has no sums of its own; None for other tags. For errors see `rows_of_rare`."""
    rows = yield from rows_of_rare(version, tag, hours, totals=totals)
    return None if rows is None else _sums_of(rows)


def _sums_of(rows: Sequence[Sequence[Any]]) -> RowSums:
    with decoding("its table labels or predictions"):
        return RowSums(rows)


def read(
    version: int, predicted_class: int, tag: int, hours: Hours, *, totals: MergedTotals
) -> Work[list[tuple[Any, ...]]]:
    """Read the rows with a predicted class (its index) and a tag (its key), in the hours [first, end).

    All rows of the class or of the tag are read, whichever has fewer, and compared with its sums. Rows that retention
    or a deletion has removed are still in the sums, so the comparison shows that they are missing.

    Raises:
        ValueError: There are too many rows to read, or some are missing.
    """
    whole = (yield from sums(version, TOTAL, hours, totals=totals))[0]
    groups: list[tuple[AnswerSums, str, int]] = []
    for kind, column, number in ((BY_CLASS, "predicted", predicted_class), (BY_TAG, "tag_key", tag)):
        by_group = yield from sums(version, kind, hours, number, totals=totals)
        groups.append((by_group.get(number, AnswerSums.zero()), column, number))
    known, column, number = min(groups, key=lambda group: group[0].answers)
    if not known.answers:
        return []
    what = "class" if column == "predicted" else "tag"
    if whole.answers > MOST_SCANNED or known.answers > MOST_ROWS:
        raise ValueError(
            f"the window has {plural(whole.answers, 'answer')}, {known.answers:,} of that {what}; class and tag"
            f" together are computed from stored predictions, at most {MOST_SCANNED:,} and {MOST_ROWS:,}"
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
            f"the window has {plural(known.answers, 'answer')} of that {what}, {known.labelled.n:,} with labels, but"
            f" only {len(rows):,} and {labelled:,} are still stored (retention or a deletion removed the others); class"
            " and tag together are computed from stored predictions"
        )
    other = (3, tag) if column == "predicted" else (2, predicted_class)
    return [row for row in rows if row[other[0]] == other[1]]


def read_by_source(version: int, hours: Hours, *, totals: MergedTotals) -> Work[dict[str, RowSums]]:
    """Sum the answers of the hours [first, end) by source of their confidence, "" if it is unknown, from their rows.

    Raises:
        ValueError: There are too many rows to read, or some are missing.
    """
    known = (yield from sums(version, TOTAL, hours, totals=totals))[0].answers
    if known > MOST_ROWS:
        raise ValueError(
            f"the window has {plural(known, 'answer')}; sources of confidences are computed from stored predictions, at"
            f" most {MOST_ROWS:,}: choose a shorter window"
        )
    times = (hours[0] or 0) * HOUR_MS, min(hours[1] or _LATEST_HOUR, _LATEST_HOUR) * HOUR_MS
    rows = yield Query(
        f"SELECT p.confidence_source, {COLUMNS} FROM predictions p"
        " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
        " WHERE p.version = $1 AND p.created_ms >= $2 AND p.created_ms < $3",
        (version, *times),
    )
    if len(rows) != known:
        raise ValueError(
            f"the window has {plural(known, 'answer')}, but only {len(rows):,} are still stored (retention or a"
            " deletion removed the others); sources of confidences are computed from stored predictions"
        )
    by_source: dict[str, list[tuple[Any, ...]]] = {}
    for source, *row in rows:
        by_source.setdefault(source or "", []).append(tuple(row))
    return {source: _sums_of(some) for source, some in by_source.items()}


def rows_of_rare(version: int, tag: str, hours: Hours, *, totals: MergedTotals) -> Work[list[tuple[Any, ...]] | None]:
    """Read the rows with a tag that has no sums of its own, in the hours [first, end); None for other tags.

    All such tags share one sum. It is compared with the number of their rows.

    Raises:
        ValueError: There are too many rows to read or to count, or some are missing.
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
            f"the window has {known:,} answers with tags without sums of their own; such a tag is computed from stored"
            f" predictions, at most {MOST_SCANNED:,}"
        )
    ((stored,),) = yield Query(f"SELECT count(*) FROM predictions p WHERE {where}", (version, *times))
    if stored != known:
        raise ValueError(
            f"the window has {plural(known, 'answer')} with tags without sums of their own, but only {stored:,} are"
            " still stored (retention or a deletion removed the others); such a tag is computed from stored predictions"
        )
    rows = yield Query(
        f"SELECT {COLUMNS} FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
        f" WHERE {where} AND p.tag = $4 LIMIT $5",
        (version, *times, tag, MOST_ROWS + 1),
    )
    if len(rows) > MOST_ROWS:
        raise ValueError(
            f"the window has more than {MOST_ROWS:,} answers with this tag; until it has sums of its own (within an"
            " hour), it is computed from stored predictions"
        )
    return [tuple(row) for row in rows]


def is_rare(version: int, tag: str) -> Work[bool]:
    """Return whether any answer has this tag while it has no sums of its own."""
    where = f"version = $1 AND tag_key = {OTHER_KEY} AND tag = $2"
    return bool((yield Query(f"SELECT 1 FROM predictions WHERE {where} LIMIT 1", (version, tag))))
