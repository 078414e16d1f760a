"""Sums of a table of answers by its engine, checked, and as the object that reports are made of."""

from __future__ import annotations

import math
from typing import Any

import ibis
import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.processes.choices import TrendUnit
from trueodds.reports.table.reading import Form
from trueodds.reports.table.summed import COLUMNS, SumGroups, TableSums
from trueodds.reports.warehouse.answer_rows import (
    CHANGED,
    DISAGREES,
    GAP,
    OFF_STEP,
    OUTSIDE,
    SUM,
    UNNAMED,
    UNUSUAL,
    all_of,
    rows_of,
)
from trueodds.reports.warehouse.expression import PARTS, sums_expression
from trueodds.reports.warehouse.parquet_source import TableSource
from trueodds.reports.warehouse.plan import ReadingPlan
from trueodds.reports.warehouse.planning import MOST_RULED_CLASSES, plan_of, rules_error
from trueodds.reports.warehouse.terms import number
from trueodds.sums.inputs import MUST_SUM
from trueodds.texts import plural

_ANEW = "the table changed while it was read; run this again when nothing writes to it"
"""Cause and cure of a value that was not there at the first look."""


def sums_of_source(
    source: TableSource,
    form: Form | None = None,
    *,
    trend: TrendUnit | None = None,
) -> TableSums:
    """Make the sums of a table in its engine.

    Args:
        source: The table.
        form: Facts about the table that it does not state.
        trend: Unit of the periods.

    Raises:
        FileError: The table cannot be read as answers, has a row that cannot be counted, or changed meanwhile.
        EngineError: The engine cannot run the expression.
    """
    sums = sums_by_plan(source, plan_of(source, form or Form(), trend=trend))
    source.check_state()
    return sums


def sums_by_plan(source: TableSource, plan: ReadingPlan) -> TableSums:
    """Make the sums of a table whose plan is known.

    Raises:
        FileError: A row cannot be counted.
        EngineError: The engine cannot run the expression.
    """
    quick = not plan.by_confidence and plan.resolution.step is None
    found = source.arrays(sums_expression(source.table, plan, quick=quick))
    if quick and _numbers(found, "problems").sum():
        if len(plan.columns) > MOST_RULED_CLASSES:
            raise _problem_of_many(source, plan)
        found = source.arrays(sums_expression(source.table, plan))
    if _numbers(found, "problems").sum():
        raise _problem(source, plan)
    part_G = np.array(PARTS, object)[_numbers(found, "part").astype(np.intp)]
    names = found.column("name").combine_chunks().dictionary_encode()
    values = np.array([*names.dictionary.to_pylist(), ""], object)
    name_G = values[names.indices.fill_null(len(names.dictionary)).to_numpy()]
    sums_GK = np.stack([_numbers(found, name) for name in COLUMNS], axis=1) if len(found) else np.zeros((0, 9))
    groups = SumGroups(
        part_G,
        name_G,
        _numbers(found, "number").astype(np.int64),
        _numbers(found, "cell").astype(np.int64),
        np.nan_to_num(sums_GK),
    )
    return TableSums(
        plan.source,
        plan.classes,
        groups,
        by_confidence=plan.by_confidence,
        positive_class="" if plan.positive is None else plan.classes[plan.positive],
        resolution=plan.resolution,
        unit=plan.unit,
        columns=plan.groups,
        notes=plan.notes,
    )


def _numbers(table: Any, name: str) -> npt.NDArray[np.float64]:
    """Return a column as numbers; a null, the sum over no rows, is 0."""
    values: npt.NDArray[np.float64] = table.column(name).cast("float64").to_numpy()
    return np.where(np.isnan(values), 0.0, values)


def _problem_of_many(source: TableSource, plan: ReadingPlan) -> FileError:
    """Build the error for rows of many classes that cannot be counted without the rules for unusual rows."""
    rows = rows_of(source.table, plan, quick=True)
    bad = rows.filter(rows.problem != 0)
    values = [bad[f"p{k}"] for k in range(len(plan.classes))]
    is_full = all_of([(value.isnull() | value.isnan()).ifelse(0, 1) == 1 for value in values])
    is_inside = all_of([(value >= number(0)) & (value <= number(1)) for value in values])
    kind = ibis.cases(
        (bad.problem != UNUSUAL, bad.problem),
        (is_full.ifelse(0, 1) == 1, ibis.literal(GAP)),
        (is_inside.ifelse(0, 1) == 1, ibis.literal(OUTSIDE)),
        else_=ibis.literal(SUM),
    )
    kinds = source.run(bad.select(kind=kind).group_by("kind").aggregate(count=ibis._.count()))
    if not kinds["kind"]:
        return _new_group(source, plan)
    first, count = min(zip(kinds["kind"], kinds["count"], strict=True))
    if first in (CHANGED, DISAGREES):
        return _error(source, plan, first, count)
    words = {GAP: "a gap (null or NaN)", OUTSIDE: "a number outside [0, 1]", SUM: "a sum other than 1"}
    return rules_error(source, plan, f"has {plural(count, 'row')} with {words[first]}")


def _problem(source: TableSource, plan: ReadingPlan) -> FileError:
    """Build the error for rows that cannot be counted."""
    rows = rows_of(source.table, plan)
    bad = rows.filter(rows.problem != 0)
    kinds = source.run(bad.group_by("problem").aggregate(count=bad.count()))
    if not kinds["problem"]:
        return _new_group(source, plan)
    kind, count = min(zip(kinds["problem"], kinds["count"], strict=True))
    if kind == SUM:
        off = bad.filter(bad.problem == SUM)
        return _error(source, plan, kind, count, 1 + source.run(off.select(value=off.excess).limit(1))["value"][0])
    return _error(source, plan, kind, count)


def _new_group(source: TableSource, plan: ReadingPlan) -> FileError:
    """Build the error for a table whose rows can all be counted, and whose groups are other ones than before."""
    names = [*(name for name, _ in plan.group_codes), *(["period"] if plan.period_range else [])]
    groups = " or ".join(names) or "value"
    return FileError(f"{source.name} holds a {groups} that was not there before: {_ANEW}")


def _error(source: TableSource, plan: ReadingPlan, kind: int, count: int, example: float = math.nan) -> FileError:
    """Build the error for rows of one kind. `example` is one of the sums that are not 1."""
    columns = ", ".join(map(repr, (plan.columns or (plan.confidence,))[:10]))
    many = f"{source.name}: {plural(count, 'row')}"
    if kind == GAP:
        return FileError(
            f"{many} hold a gap (null or NaN) in {columns}; allowed is [0, 1] in every row: leave them out"
        )
    if kind == OUTSIDE:
        return FileError(
            f"{many} hold a number outside [0, 1] in {columns}; give probabilities, not percentages or logits"
        )
    if kind == SUM:
        return FileError(f"{many} of {columns} do not sum to 1 (one sums to {example:.6g}); every row {MUST_SUM}")
    if kind == OFF_STEP:
        step = plan.resolution.step
        return FileError(f"{many} hold a value in {columns} that is not a multiple of the resolution {step:g}")
    if kind == CHANGED:
        return FileError(f"{many} hold a label that was not there before: {_ANEW}")
    if kind == UNNAMED:
        return FileError(f"{many} have no predicted class; every answer needs one")
    assert kind == DISAGREES
    return FileError(
        f"{many} predict another class than that of the highest probability; leave out predicted, or give confidence,"
        " predicted and label in place of the probabilities"
    )
