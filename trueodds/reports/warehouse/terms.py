"""Terms of the expression: numbers, lookups and the cells, each computed in double precision as NumPy computes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import add
from typing import Any

import ibis
from ibis.expr.datatypes import Array

from trueodds.reports.warehouse.plan import NONE, UNSEEN, Codes, Expression
from trueodds.sums.bins import CELLS, EDGES
from trueodds.sums.fine import COARSE, FINE_EDGES

MOST_PAIRED = 32
"""Largest number of columns that are compared in pairs. Each round repeats the names of all columns in the SQL text."""
_BLOCK = 128
_UNROLLED = 8
_LARGEST = 2**63 - 1
"""Largest whole number of the usual type of 64 bits."""


def number(value: float) -> Expression:
    """Return a constant in double precision. As text it is exact in every engine, which a decimal literal is not."""
    return _constant(repr(float(value)))


@lru_cache(1_000)
def _constant(text: str) -> Expression:
    """Return a constant, once for all places: Ibis compares equal objects part by part, and the same ones at once."""
    return ibis.literal(text).cast("float64")


def where(condition: Expression, yes: Expression, no: Expression) -> Expression:
    """Return `yes` if the condition holds, and `no` if it does not or is null."""
    return ibis.cases((condition, yes), else_=no)


def at_most(value: Expression, most: Expression) -> Expression:
    """Return the smaller of two values. A null stays null, which LEAST would ignore in some engines."""
    return where(value > most, most, value)


def at_least(value: Expression, least: Expression) -> Expression:
    """Return the larger of two values. A null stays null."""
    return where(value < least, least, value)


def largest(rows: Expression, names: Sequence[str], *, by_pairs: bool) -> tuple[Expression, Expression]:
    """Return the rows, perhaps with more columns, and the largest value of some columns.

    Args:
        rows: The rows.
        names: The columns.
        by_pairs: Whether to compare pairs, and then the larger ones of them, up to `MOST_PAIRED` columns. A row with a
            null may then have a null.
    """
    if not by_pairs or len(names) > MOST_PAIRED or len(names) == 1:
        return rows, ibis.greatest(*(rows[name] for name in names))
    depth = 0
    while len(names) > 2:
        pairs = list(zip(names[::2], names[1::2], strict=False))
        found = {f"top_{depth}_{k}": at_least(rows[one], rows[other]) for k, (one, other) in enumerate(pairs)}
        rows, depth = rows.mutate(**found), depth + 1
        names = [*found, *names[2 * len(pairs) :]]
    return rows, at_least(rows[names[0]], rows[names[1]])


def square(size: Expression, *, is_guarded: bool = False) -> Expression:
    """Return the square of a number that is not negative.

    Args:
        size: The number.
        is_guarded: Whether to return 0 for numbers below 1e-75 or above 2, since some engines stop at a product that a
            double cannot hold. A probability below 1e-75 adds less than 1e-150 to a sum of squares. Above 2 is none.
    """
    if not is_guarded:
        return size * size
    return where((size >= number(1e-75)) & (size <= number(2)), size * size, number(0))


def total(terms: Sequence[Expression]) -> Expression:
    """Add terms in the order in which NumPy adds a row, so that a sum at a limit is on the same side of it."""
    if len(terms) < _UNROLLED:
        return reduce(add, terms)
    if len(terms) > _BLOCK:
        half = len(terms) // 2
        half -= half % _UNROLLED
        return total(terms[:half]) + total(terms[half:])
    whole = len(terms) - len(terms) % _UNROLLED
    r = [reduce(add, terms[k:whole:_UNROLLED]) for k in range(_UNROLLED)]
    return reduce(add, terms[whole:], ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7])))


def cell(value: Expression) -> Expression:
    """Return the cell of a confidence in [0, 1]: the smallest k with c <= (k + 1) / 3000."""
    return cell_near(value, cells_below(value)).cast("int64")


def cells_below(value: Expression) -> Expression:
    """Return the number of whole cells below a confidence in double precision: its cell, or at an edge the next one."""
    return (value * number(CELLS)).floor().cast("float64")


def cell_near(value: Expression, below: Expression) -> Expression:
    """Return the cell of a confidence in double precision, which engines add and multiply fastest.

    Args:
        value: The confidence.
        below: Its `cells_below`. As a column of an earlier step, it is computed once for a row.
    """
    return where((value <= below / number(CELLS)) & (below > number(0)), below - number(1), below)


def fine_cell(value: Expression) -> Expression:
    """Return the cell of p(positive) as `trueodds.sums.fine.fine_cell_of` numbers it."""
    edges = FINE_EDGES.tolist()

    def search(low: int, high: int) -> Expression:
        """Return the largest k in [low, high) with edges[k] < value, where `low` is one unless it is 0."""
        if high - low == 1:
            return ibis.literal(CELLS + low, "int64")
        middle = (low + high) // 2
        return where(value > number(edges[middle]), search(middle, high), search(low, middle))

    return where(value <= number(EDGES[COARSE]), search(0, len(edges) - 1), cell(value))


def code(column: Expression, codes: Codes, *, by_list: bool = False, unseen: int = UNSEEN) -> Expression:
    """Return the meaning of a column's values. A value that is not there is `unseen`; a missing one is `NONE`.

    Args:
        column: The column.
        codes: Its values and their meanings.
        by_list: Whether the engine finds a text in a list faster than by a comparison with each.
        unseen: Meaning of all other values.
    """
    gap = column.isnull()
    if column.type().is_floating():
        gap = gap | column.isnan()
    missing = next((meaning for value, meaning in codes if value is None), NONE)
    values = [(value, meaning) for value, meaning in codes if value is not None]
    if column.type().is_integer() and _is_shift(values):
        (first, start), (last, _) = min(values), max(values)
        return ibis.cases(
            (gap, ibis.literal(missing, "int64")),
            ((column >= first) & (column <= last), column.cast("int64") - (first - start)),
            else_=ibis.literal(unseen, "int64"),
        )
    ordered = [value for value, _ in sorted(values, key=lambda pair: pair[1])]
    if by_list and ordered and column.type().is_string() and {k for _, k in values} == {*range(len(ordered))}:
        # Coalesced, and not a case, whose parts DuckDB computes again for each branch that names them.
        place = _list_position(ibis.array(ordered), column) - 1
        return place.fill_null(where(gap, ibis.literal(missing, "int64"), ibis.literal(unseen, "int64")))
    found = [(_equals(column, value), ibis.literal(meaning, "int64")) for value, meaning in values]
    return ibis.cases((gap, ibis.literal(missing, "int64")), *found, else_=ibis.literal(unseen, "int64"))


def _is_shift(values: Sequence[tuple[Any, int]]) -> bool:
    """Return whether the meanings are the values minus a constant, without gaps."""
    ordered = sorted(values)
    shifts = {value - meaning for value, meaning in ordered}
    is_whole = bool(ordered) and len(shifts) == 1 and ordered[-1][0] - ordered[0][0] == len(ordered) - 1
    return is_whole and ordered[-1][0] <= _LARGEST


def _equals(column: Expression, value: Any) -> Expression:
    """Return whether a column holds a value."""
    if column.type().is_boolean():
        return column if value else ~column
    if column.type().is_floating():
        return column == number(value)
    return column == ibis.literal(value, "uint64" if isinstance(value, int) and value > _LARGEST else None)


@ibis.udf.scalar.builtin(name="list_position")  # type: ignore[untyped-decorator]
def _list_position(values: Array[str], value: str) -> int:  # type: ignore[empty-body]
    """Return the place of a text in a list of DuckDB, from 1 on; null if it is not there."""


def value_at(index: Expression, values: Sequence[Expression]) -> Expression:
    """Return the value at an index; null for an index below 0. No index is beyond the values.

    The search by halves compares the index log2(n) times.
    """

    def search(low: int, high: int) -> Expression:
        if high - low == 1:
            return values[low]
        middle = (low + high) // 2
        return where(index < middle, search(low, middle), search(middle, high))

    return where(index >= 0, search(0, len(values)), ibis.null("float64"))
