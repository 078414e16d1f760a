"""Checks of an engine's arithmetic: whether it decides the edge of a cell, a gap and a day as NumPy does."""

from __future__ import annotations

from functools import reduce
from operator import and_

import ibis
import numpy as np

from trueodds.reports.warehouse.plan import Expression
from trueodds.reports.warehouse.table_source import EngineError, TableSource
from trueodds.reports.warehouse.terms import cell, number
from trueodds.sums.bins import CELLS, EDGES, cell_of

_HARD = (0.1, 1 / 3, 0.7, 1 / CELLS, 2999 / CELLS, 5e-8, 1.0010000000000001)
"""Numbers that a reader of decimals rounds wrongly if it works in single precision or digit by digit."""
_MIDNIGHT = 1_769_817_600
"""Beginning of 31 January 2026."""
_MOMENTS = ("2026-01-31 00:05:00+00:00", "2026-01-31 23:55:00+00:00")


def _constants() -> Expression:
    """Return whether constants are the nearest double. Each, times a power of 2, is compared with a whole number."""
    exact = []
    for value in _HARD:
        whole, power = value.as_integer_ratio()
        scaled = number(value)
        while power > 1:
            scaled *= ibis.literal(min(power, 2**60), "int64").cast("float64")
            power //= min(power, 2**60)
        exact.append(scaled.cast("int64") == whole)
    return _all(exact)


def _cells() -> Expression:
    """Return whether confidences at an edge, and one double beside it, are in the cells of Python."""
    values = [float(v) for k in (7, 1501, 2100, 2999) for v in (EDGES[k], np.nextafter(EDGES[k], 1))]
    own = cell_of(np.array(values)).tolist()
    return _all([cell(number(value)) == int(k) for value, k in zip(values, own, strict=True)])


def _gaps() -> Expression:
    """Return whether NaN is outside [0, 1], and not near 1."""
    nan = ibis.literal("NaN").cast("float64")
    inside = (nan >= number(0)) & (nan <= number(1))
    return (inside | ((nan - number(1)).abs() < number(0.001))).ifelse(0, 1) == 1


def _logarithms() -> Expression:
    """Return whether logarithms and roots have the precision of a double."""
    exact = {-number(0.25).ln(): 1.3862943611198906, number(2).sqrt(): 1.4142135623730951}
    return _all([(value - number(known)).abs() < number(1e-14) for value, known in exact.items()])


def _texts() -> Expression:
    """Return whether case and blanks at the end tell texts apart."""
    pairs = [("a", "A"), ("a", "a ")]
    return _all([ibis.literal(one) != ibis.literal(other) for one, other in pairs])


def _days() -> Expression:
    """Return whether days begin at midnight of UTC, as seen just before and just after it."""
    seconds = [ibis.literal(moment).cast("timestamp('UTC')").truncate("D").epoch_seconds() for moment in _MOMENTS]
    return _all([second == _MIDNIGHT for second in seconds])


def _all(conditions: list[Expression]) -> Expression:
    return reduce(and_, conditions)


PROBES = {
    "constants": (_constants, "reads numbers with another last digit"),
    "cells": (_cells, "puts a confidence at the edge of a cell into another cell"),
    "gaps": (_gaps, "takes NaN for a number in [0, 1]"),
    "logarithms": (_logarithms, "computes logarithms or roots in less than double precision"),
    "texts": (_texts, "takes different texts for equal ones"),
    "days": (_days, "lets days begin at another time than midnight in UTC: set the time zone of the session to UTC"),
}
"""Name -> the check, and the words for an engine that fails it."""


def check_arithmetic(source: TableSource) -> None:
    """Check that an engine computes as `trueodds.sums` does. One query over constants decides.

    Raises:
        EngineError: It does not, or cannot run the query.
    """
    terms = {name: make().ifelse(1, 0).name(name) for name, (make, _) in PROBES.items()}
    one = ibis.literal(1, "int64").name("one").as_table()
    answers = source.run(one.select(**terms))
    for name, (_, words) in PROBES.items():
        if answers[name][0] != 1:
            raise EngineError(
                f"{source.name}: the engine {source.engine} {words}, so its sums would be other numbers than those of"
                " TrueOdds. Write the table to Parquet files, and use --engine duckdb"
            )
