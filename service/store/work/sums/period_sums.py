"""Sums of one period as the store keeps them: sparse, one compact blob per period and kind."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from service.store.rows import Integers, StoreDamagedError, Unit
from service.store.work.sums.deltas import LEVEL_CELLS, POSITIVE, TOTALS, DeltaRows, Deltas, columns_of, keys_of
from trueodds.metrics import CELLS, COLUMNS, CalibrationSums
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import COARSE_CELLS
from trueodds.sums.fine import COARSE, FINE, FineSums, equal_cell_of
from trueodds.sums.hours import HOUR_MS, MINUTE_MS, Hours
from trueodds.sums.inputs import Array
from trueodds.sums.ordered import ROW_COLUMNS, OrderedSums

HOUR, DAY, MONTH, MINUTE = range(4)
UNITS = (HOUR, DAY, MONTH)
"""Units whose sums are kept for ever. Sums of minutes are kept for a few hours only."""
UNIT_OF: dict[Unit, int] = {"minute": MINUTE, "hour": HOUR, "day": DAY, "month": MONTH}
MINUTE_HOURS = 6
"""Number of whole past hours for which sums are also kept by minute, for a version that is young."""
_DATES = ("datetime64[h]", "datetime64[D]", "datetime64[M]", "datetime64[m]")

_BLOB = struct.Struct("<4sBIII")
_MAGIC = b"tops"


def _convert(number: npt.ArrayLike, unit: int, to: int) -> Integers:
    """Convert numbers of periods since 1970 to another unit: to the period that contains them, or the first within."""
    return np.asarray(number, np.int64).astype(_DATES[unit]).astype(_DATES[to]).astype(np.int64)


def period_of(hour: npt.ArrayLike, unit: int) -> Integers:
    """Convert hours since 1970, UTC, to minutes, hours, days or months since 1970."""
    return _convert(hour, HOUR, unit)


def periods_of(hours: Hours, unit: int) -> tuple[int | None, int | None]:
    """Return the periods [first, end) that overlap the hours [first, end)."""
    first, end = hours
    whole = end if end is None or unit == MINUTE else end - 1
    last = None if whole is None else int(period_of(whole, unit)) + (unit != MINUTE)
    return None if first is None else int(period_of(first, unit)), last


def start_ms(period: int, unit: int) -> int:
    """Return the start of a period in Unix milliseconds."""
    return int(_convert(period, unit, MINUTE)) * MINUTE_MS


def check_number(periods: int, unit: Unit, most: int) -> None:
    """Raise ValueError if there are more periods than `most`."""
    if periods > most:
        cure = "ask for a coarser unit (day, month) or a shorter window"
        raise ValueError(f"the window has {periods:,} periods of one {unit}; the limit is {most:,}: {cure}")


def minutes_from() -> int:
    """Return the first hour of which minutes can be read now. One earlier hour is also written, for clock errors."""
    return time.time_ns() // (1_000_000 * HOUR_MS) - MINUTE_HOURS


def check_minutes(first_hour: int | None) -> None:
    """Raise ValueError if a window begins with hours whose minutes are no longer kept."""
    kept = minutes_from()
    if first_hour is None or first_hour >= kept:
        return
    times = (datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC) for hour in (first_hour, kept))
    first, since = (f"{time:%Y-%m-%dT%H:%MZ}" for time in times)
    raise ValueError(
        f"sums by minute are kept for {MINUTE_HOURS} hours, now since {since}, but the window has answers since"
        f" {first}: ask for a coarser unit (hour, day, month), or since={since}"
    )


def cover(first: int | None, end: int | None) -> list[tuple[int, int | None, int | None]]:
    """Return a few periods that make up the hours [first, end): (unit, first period, end period). None means no limit.

    They are at most 2 x 23 hours and 2 x 30 days; the rest is months.
    """
    ranges: list[tuple[int, int | None, int | None]] = []
    low, high = first, end
    for unit in (HOUR, DAY):
        inner_low = None if low is None else _next(low, unit)
        inner_high = None if high is None else int(_convert(high, unit, unit + 1))
        if inner_low is not None and inner_high is not None and inner_high <= inner_low:
            break
        if low is not None and inner_low is not None:
            ranges.append((unit, low, int(_convert(inner_low, unit + 1, unit))))
        if high is not None and inner_high is not None:
            ranges.append((unit, int(_convert(inner_high, unit + 1, unit)), high))
        low, high = inner_low, inner_high
    else:
        unit = MONTH
    ranges.append((unit, low, high))
    return [(unit, low, high) for unit, low, high in ranges if low is None or high is None or low < high]


def _next(period: int, unit: int) -> int:
    """Return the first period of the next unit that begins at `period` or later."""
    inside = int(_convert(period, unit, unit + 1))
    return inside if int(_convert(inside, unit + 1, unit)) == period else inside + 1


@dataclass(frozen=True, eq=False)
class PeriodSums:
    """Counts of all answers and sums of the labelled ones, by ascending key. See `deltas.keys_of`."""

    answer_keys_A: Integers
    answers_A: Integers
    label_keys_L: Integers
    columns_7L: Array

    @classmethod
    def zero(cls) -> PeriodSums:
        none = np.zeros(0, np.int64)
        return cls(none, none, none, np.zeros((len(COLUMNS), 0)))

    @classmethod
    def of(cls, deltas: Deltas, kind: int) -> PeriodSums:
        """Return the sums of some deltas."""
        keys_A, counts_1A = _merge(keys_of(deltas.answers, kind), deltas.answers["sign"][None])
        keys_L, columns_7L = _merge(keys_of(deltas.labels, kind), columns_of(deltas.labels))
        return cls(keys_A, counts_1A[0].astype(np.int64), keys_L, columns_7L)

    def __add__(self, other: PeriodSums) -> PeriodSums:
        return add_up([self, other])

    def without_empty(self) -> PeriodSums:
        """Drop keys whose last answer or label was subtracted, so that no rounding errors remain there.

        Use it only on whole sums: in deltas, a correction changes no count, but changes NLL and Brier score.
        """
        held_A, kept = self.answers_A != 0, self.columns_7L[0] != 0
        answers = self.answer_keys_A[held_A], self.answers_A[held_A]
        return PeriodSums(*answers, self.label_keys_L[kept], self.columns_7L[:, kept])

    def to_bytes(self) -> bytes:
        """Encode whole sums: keys as uint32, counts as uint32 (uint64 if one needs it), sums as float64.

        They are not compressed: deflate saves 40%, but makes a read that adds up a hundred periods five times slower.
        """
        counts_2L, sums_5L = self.columns_7L[[0, 2]], self.columns_7L[[1, 3, 4, 5, 6]]
        wide = max(self.answers_A.max(initial=0), counts_2L.max(initial=0)) >= 2**32
        count = "<u8" if wide else "<u4"
        parts = ((self.answer_keys_A, "<u4"), (self.answers_A, count), (self.label_keys_L, "<u4"), (counts_2L, count))
        body = b"".join(
            np.ascontiguousarray(part).astype(dtype).tobytes() for part, dtype in (*parts, (sums_5L, "<f8"))
        )
        return _BLOB.pack(_MAGIC, 2 if wide else 1, len(self.answers_A), len(self.label_keys_L), crc32(body)) + body

    @classmethod
    def from_bytes(cls, blob: bytes) -> PeriodSums:
        """Decode the sums that `to_bytes` wrote.

        Raises:
            StoreDamagedError: It is not such a blob, or it is damaged.
        """
        magic, width, a, n, check = _BLOB.unpack_from(blob) if len(blob) >= _BLOB.size else (b"", 0, 0, 0, 0)
        if magic != _MAGIC or width not in (1, 2):
            raise StoreDamagedError("its table sums holds a value that is not sums")
        body, size = memoryview(blob)[_BLOB.size :], 4 * width
        if len(body) != (4 + size) * a + (4 + 2 * size + 5 * 8) * n or crc32(body) != check:
            raise StoreDamagedError("a checksum or a length in its table sums is wrong")
        count, place = f"<u{size}", 0
        parts: list[npt.NDArray[np.number]] = []
        for length, dtype in ((a, "<u4"), (a, count), (n, "<u4"), (2 * n, count), (5 * n, "<f8")):
            parts.append(np.frombuffer(body, dtype, length, place))
            place += length * parts[-1].itemsize
        columns_7L = np.empty((len(COLUMNS), n))
        columns_7L[[0, 2]], columns_7L[[1, 3, 4, 5, 6]] = parts[3].reshape(2, n), parts[4].reshape(5, n)
        keys_A, answers_A, keys_L = (part.astype(np.int64) for part in parts[:3])
        return cls(keys_A, answers_A, keys_L, columns_7L)

    def answer_sums(self, kind: int, only: int | None = None) -> dict[int, AnswerSums]:
        """Return sums by group (class, or key of a tag), 192 KB each, or of `only` one. A total has the one group 0."""
        sums = self.without_empty()
        if kind in TOTALS:
            answers_C, cells = np.zeros(CELLS, np.int64), np.zeros((len(COLUMNS), CELLS))
            answers_C[sums.answer_keys_A] = sums.answers_A
            np.add.at(cells.T, equal_cell_of(sums.label_keys_L), sums.columns_7L.T)
            labelled = CalibrationSums(cells)
            if (
                kind == POSITIVE and not (sums.label_keys_L < COARSE).any()
            ):  # stores before the fine cells have such keys
                labelled = _fine_sums(sums.label_keys_L, sums.columns_7L)
            return {0: AnswerSums(answers_C, labelled)}
        by_group: dict[int, AnswerSums] = {}
        label_group_L, answer_group_A = sums.label_keys_L // COARSE_CELLS, sums.answer_keys_A // COARSE_CELLS
        for group in np.unique(answer_group_A).tolist():
            if only not in (None, group):
                continue
            inside_A, inside_L = answer_group_A == group, label_group_L == group
            place_G, cells = _places(sums.label_keys_L[inside_L] % COARSE_CELLS, sums.columns_7L[:, inside_L])
            answers_C = np.zeros(CELLS, np.int64)
            answers_C[place_G[sums.answer_keys_A[inside_A] % COARSE_CELLS]] = sums.answers_A[inside_A]
            by_group[group] = AnswerSums(answers_C, CalibrationSums(cells))
        return by_group

    def ordered_sums(self, levels: int) -> OrderedSums:
        """Return the sums of ordered classes, which are sums of the kind ORDERED."""
        sums = self.without_empty()
        level_L, cell_L = np.divmod(sums.label_keys_L, LEVEL_CELLS)
        parts = [_fine_sums(cell_L[level_L == k], sums.columns_7L[:, level_L == k]) for k in range(1, levels)]
        rows, of_rows_L = np.zeros((len(ROW_COLUMNS), LEVEL_CELLS)), level_L == 0
        count, residual, _, if_off, _, rps, rps_squared = sums.columns_7L[:, of_rows_L]
        rows[:, cell_L[of_rows_L]] = count, residual, rps, rps_squared, if_off
        return OrderedSums(tuple(parts), rows)


def _fine_sums(cell_L: Integers, columns_7L: Array) -> FineSums:
    """Return sums by p(positive) from cells that `fine_cell_of` numbers."""
    cells, fine = np.zeros((len(COLUMNS), CELLS)), np.zeros((3, FINE))
    np.add.at(cells.T, equal_cell_of(cell_L), columns_7L.T)
    is_fine_L = cell_L >= CELLS
    fine[:, cell_L[is_fine_L] - CELLS] = columns_7L[:3, is_fine_L]
    return FineSums(cells, fine)


def _places(grid_L: Integers, columns_7L: Array) -> tuple[Integers, Array]:
    """Map each of the 60 cells to the cell of 3,000 with its mean confidence (its middle without labels)."""
    step = CELLS // COARSE_CELLS
    place_G = np.arange(COARSE_CELLS) * step + step // 2
    mean_L = columns_7L[1] / columns_7L[0]
    inside = np.ceil(mean_L * CELLS).astype(np.int64) - 1
    place_G[grid_L] = np.clip(inside, grid_L * step, (grid_L + 1) * step - 1)
    cells = np.zeros((len(COLUMNS), CELLS))
    cells[:, place_G[grid_L]] = columns_7L
    return place_G, cells


def add_up(parts: list[PeriodSums]) -> PeriodSums:
    """Add up any number of sums."""
    answers = [(part.answer_keys_A, part.answers_A[None]) for part in parts]
    labels = [(part.label_keys_L, part.columns_7L) for part in parts]
    (keys_A, counts_1A), (keys_L, columns_7L) = _dense(answers, 1), _dense(labels, len(COLUMNS))
    return PeriodSums(keys_A, counts_1A[0].astype(np.int64), keys_L, columns_7L)


def _dense(parts: Sequence[tuple[Integers, npt.NDArray[Any]]], rows: int) -> tuple[Integers, Array]:
    """Sum over equal keys. Within a part, each key occurs once. Keys are small: at most 60 x classes."""
    size = max((int(keys[-1]) + 1 for keys, _ in parts if len(keys)), default=0)
    table, touched = np.zeros((rows, size)), np.zeros(size, bool)
    for keys, values in parts:
        table[:, keys] += values
        touched[keys] = True
    keys = np.flatnonzero(touched)
    return keys.astype(np.int64), table[:, keys]


def _merge(key_N: Integers, value_RN: npt.NDArray[np.number]) -> tuple[Integers, Array]:
    """Sum over equal keys."""
    keys = np.flatnonzero(np.bincount(key_N))
    return keys.astype(np.int64), np.stack([np.bincount(key_N, row)[keys] for row in value_RN])


def by_period(deltas: Deltas, unit: int) -> Iterator[tuple[int, Deltas]]:
    """Split deltas into their periods."""
    both = deltas.answers, deltas.labels
    periods = [_convert(rows["minute"], MINUTE, unit) for rows in both]
    orders = [np.argsort(period_N, kind="stable") for period_N in periods]
    ordered = [rows[order] for rows, order in zip(both, orders, strict=True)]
    periods = [period_N[order] for period_N, order in zip(periods, orders, strict=True)]
    for period in np.unique(np.concatenate(periods)).tolist():
        parts: list[DeltaRows] = []
        for rows, period_N in zip(ordered, periods, strict=True):
            low, high = np.searchsorted(period_N, [period, period + 1])
            parts.append(rows[low:high])
        yield period, Deltas(*parts)
