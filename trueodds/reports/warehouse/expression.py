"""The one expression that makes the sums: one scan, and every row is in one group of each table of the report."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Literal, get_args

import ibis

from trueodds.reports.warehouse.answer_rows import floor_divide, rows_of
from trueodds.reports.warehouse.plan import Codes, Expression, Group, ReadingPlan
from trueodds.reports.warehouse.terms import cell_near, cells_below, code, fine_cell, number, where
from trueodds.sums.bins import CELLS

Part = Literal["class", "version", "tag", "confidence_source", "period", "positive", "rounded"]
"""Tables of the sums. Each answer is in one group of each, except that `rounded` holds answers whose NLL has limits."""
PARTS: tuple[Part, ...] = get_args(Part)
SCORED: tuple[Part, ...] = ("class", "positive", "rounded")
"""Tables with log loss and Brier score."""
KEYS = ("part", "name", "number", "cell")
"""Columns that identify a group."""
COUNTS = ("answers", "count", "correct", "zeros")
_WIDTH = 4096
"""Number of cells that a key of a class or a period leaves room for."""
MOST_SMALL = 2**16 // CELLS
"""Largest number of groups whose cells have keys of 16 bits."""
MOST_TABLES = 3
"""Largest number of aggregates for the periods. Each has keys of 16 bits, and takes some 3 MB for each thread."""
SUMS = ("confidence", "nll", "nll_squared", "brier", "brier_squared")


def parts_of(plan: ReadingPlan) -> list[Part]:
    """Return the tables that a plan needs."""
    parts: list[Part] = ["class", *plan.groups]
    if plan.unit is not None:
        parts.append("period")
    if plan.positive is not None:
        parts.append("positive")
    if plan.resolution.step is not None and not plan.by_confidence:
        parts.append("rounded")
    return parts


def sums_expression(table: Expression, plan: ReadingPlan, *, quick: bool = False) -> Expression:
    """Return the expression of a table's sums: one scan, and one aggregate or, with `has_fan_out`, one for each table.

    Its rows are groups: `part` (the index in `PARTS`), `name` and `number` (the group's key), and `cell`. Then come the
    counts, the sums over labelled rows, and `problems`, the number of rows that cannot be counted.

    Args:
        table: A table of Ibis, bound to an engine or not.
        plan: Its plan.
        quick: Whether to leave out the rules for unusual rows (`rows_of`).
    """
    rows = rows_of(table, plan, quick=quick)
    # A null in each row without a label: engines skip it faster than they filter an aggregate.
    known, unknown = rows.label_code >= 0, ibis.null("float64")
    rows = rows.mutate(below=cells_below(rows.confidence))
    rows = rows.mutate(
        near_cell=cell_near(rows.confidence, rows.below),
        top=where(known, rows.confidence, unknown),
        correct=where(known, rows.correct, unknown),
    )
    rows = rows.mutate(top_cell=rows.near_cell.cast("int64"))
    if plan.positive is not None:
        rows = rows.mutate(
            p_cell=fine_cell(rows.p),
            known_p=where(known, rows.p, unknown),
            **{name: where(known, rows[name], unknown) for name in ("positive", "p_nll", "p_brier")},
        )
    if plan.has_fan_out:
        return _part_by_part(rows, plan)
    parts = [PARTS.index(part) for part in parts_of(plan)]
    keys = KEYS if len(parts) > 1 else ("number", "cell")  # constants cost time as keys
    if len(parts) > 1:
        rows = rows.cross_join(_numbers(parts))
    whole = ibis.literal(0, "int64")
    values = {
        "number": rows.class_code,
        "cell": rows.top_cell,
        "confidence": rows.top,
        "right": rows.correct,
        "nll": rows.nll,
        "brier": rows.brier,
    }
    of: dict[Part, Expression] = {}
    if len(parts) > 1:
        of = {part: rows.part == PARTS.index(part) for part in parts_of(plan)}
        name = [(of[group], rows[f"group_{group}"]) for group in plan.groups]
        values |= {
            "part": rows.part,
            "name": ibis.cases(*name, else_=ibis.null("string")) if name else ibis.literal(""),
        }
        period = [(of["period"], rows.period)] if "period" in of else []
        values["number"] = ibis.cases((of["class"], rows.class_code), *period, else_=whole)
    if "positive" in of:
        own = {"cell": "p_cell", "confidence": "known_p", "right": "positive", "nll": "p_nll", "brier": "p_brier"}
        values |= {name: where(of["positive"], rows[column], values[name]) for name, column in own.items()}
    if "rounded" in of:
        zero = rows.is_zero == 1
        values["right"] = where(of["rounded"], rows.is_zero.cast("float64"), values["right"])
        values["nll"] = where(of["rounded"], rows.least_nll, values["nll"])
        values["brier"] = where(of["rounded"], where(zero, rows.nll, ibis.literal(0.0)), values["brier"])
    rows = rows.select(
        **values,
        problem=where(rows.problem == 0, ibis.null("int8"), ibis.literal(1, "int8")),
        is_zero=rows.is_zero,
    )
    scored = None
    if len(parts) > 1:
        scored = reduce(or_, [rows.part == PARTS.index(part) for part in SCORED if part in of])
    is_zero = rows.is_zero == 1
    groups = rows.group_by(*keys).aggregate(
        answers=rows.count(),
        count=rows.confidence.count(),
        correct=rows.right.sum(),
        zeros=rows.count(where=is_zero if scored is None else scored & is_zero),
        confidence=rows.confidence.sum(),
        nll=rows.nll.sum(where=scored),
        nll_squared=(rows.nll * rows.nll).sum(where=scored),
        brier=rows.brier.sum(where=scored),
        brier_squared=(rows.brier * rows.brier).sum(where=scored),
        problems=rows.problem.count(),
    )
    constants = {} if len(parts) > 1 else {"part": ibis.literal(parts[0], "int64"), "name": ibis.literal("", "string")}
    return groups.mutate(**constants).select(*KEYS, *COUNTS, *SUMS, "problems")


def _part_by_part(rows: Expression, plan: ReadingPlan) -> Expression:
    """Return a union of aggregates, one for each table, each with the keys and the sums that it needs."""
    # Tried without a gain that 16 turns beside each other show: keys added up in 16 bits, cells without a case, labels
    # found in a list with a null, no guard of the confidence. The probability of the true class as a sum of products
    # or as an element of a list takes as long as the search by halves, or longer.
    # A quarter of the time goes to sums that are not in the processor's cache: it was saved with 30 cells in place of
    # 3,000. One sum in 128 bits for the three counts of a group took from 6% less to 2% more. Losses added up apart
    # from the classes took from 8% less to 6% more. It depends on what else the machine does.
    codes = {f"code_{group}": _group_code(rows, group, values) for group, values in plan.group_codes}
    if plan.unit is not None and plan.period_range is not None:
        codes["code_period"] = _period_code(rows, *plan.period_range)
    rows = rows.mutate(right=_if(rows.label_code == rows.class_code), **codes)
    # Each takes a view of the rows: Ibis then leaves the computed columns in what all share.
    tables = [_aggregate(part, rows.view(), plan) for part in parts_of(plan) if part != "period"]
    if plan.unit is not None:
        tables += _period_tables(rows, plan)
    # Aggregates of a few rows cost less than filtered sums over all.
    bad = rows.view()
    bad = bad.filter(bad.problem != 0)
    tables.append(_complete("class", bad.aggregate(problems=bad.count())))
    if not plan.by_confidence:
        zeros = rows.view()
        zeros = zeros.filter(zeros["true"] <= number(0))  # as `is_zero`, which would be computed for each row
        groups = zeros.group_by(number=zeros.class_code, cell=zeros.top_cell).aggregate(zeros=zeros.count())
        tables.append(_complete("class", groups))
    return ibis.union(*tables)


def _group_code(rows: Expression, group: Group, codes: Codes) -> Expression:
    """Return the number of each row's group. A value that was not there before has the number after the last one."""
    unseen = len(codes)
    if all(value is not None for value, _ in codes):
        codes = (*codes, (None, unseen))
    return code(rows[f"group_{group}"], codes, by_list=True, unseen=unseen)


def _period_code(rows: Expression, first: int, last: int) -> Expression:
    """Return the distance of each row's period from the first one. A new period has the number after the last one."""
    inside = (rows.period >= first) & (rows.period <= last)
    return where(inside, (rows.period - first).cast("float64"), number(last - first + 1))


def _period_tables(rows: Expression, plan: ReadingPlan) -> list[Expression]:
    """Return the groups of the periods: one table, or some whose periods are few enough for keys of 16 bits."""
    if plan.period_range is None:
        return [_aggregate("period", rows.view(), plan)]
    first, last = plan.period_range
    most = last - first + 2  # with the code of new ones
    tables = []
    for start in range(0, most, MOST_SMALL):
        own = rows.view()
        if start:
            own = own.filter(own.code_period >= number(start))
        if start + MOST_SMALL < most:
            own = own.filter(own.code_period < number(start + MOST_SMALL))
        groups = _aggregate("period", own, plan, start)
        tables.append(groups)
    return tables


def _aggregate(part: Part, rows: Expression, plan: ReadingPlan, start: int = 0) -> Expression:
    """Return the groups of one table. With a range of periods, `start` is the code of its first one."""
    name: Expression = None
    group: Expression = None
    cells, most = rows.top_cell, 0
    values = {"top": rows.top, "right": rows.right}
    codes = next((own for name_of_group, own in plan.group_codes if name_of_group == part), ())
    if part == "class":
        group = rows.class_code
        if not plan.by_confidence:
            most = len(plan.classes)
            values |= {"nll": rows.nll, "brier": rows.brier}
    elif part == "period" and plan.period_range is not None:
        group, most = rows.code_period - number(start), MOST_SMALL
    elif part == "period":
        group = rows.period
    elif part == "positive":
        cells = rows.p_cell
        right = _if(rows.positive == 1)
        values = {"top": rows.known_p, "right": right, "nll": rows.p_nll, "brier": rows.p_brier}
    elif part == "rounded":
        is_zero = rows.is_zero == 1
        zero_nll = where(is_zero, rows.nll, ibis.literal(0.0))
        values = {"top": rows.top, "right": _if(is_zero), "nll": rows.least_nll, "brier": zero_nll}
    elif codes:
        group, most = rows[f"code_{part}"], len(codes) + 1
    else:
        name = rows[f"group_{part}"]
    is_small = 0 < most <= MOST_SMALL
    width = CELLS if is_small else _WIDTH
    # One whole number is found fastest. With 16 bits it is a place in an array.
    if is_small:
        key = (group.cast("float64") * float(width) + rows.near_cell).cast("uint16")
    else:
        key = cells if group is None else group * width + cells
    keys = {"key": key}
    if name is not None:
        keys["name"] = name
    own = rows.select(**keys, **values)
    sums = {
        "answers": own.count(),
        "count": own.top.count(),
        "correct": own.right.count(),
        "confidence": own.top.sum(),
    }
    if "nll" in values:
        sums |= {"nll": own.nll.sum(), "nll_squared": (own.nll * own.nll).sum()}
        sums |= {"brier": own.brier.sum(), "brier_squared": (own.brier * own.brier).sum()}
    groups = own.group_by(*keys).aggregate(**sums)
    groups = groups.mutate(correct=groups.correct.cast("float64"), key=groups.key.cast("int64"))
    if group is None:
        return _complete(part, groups.rename(cell="key"))
    groups = groups.mutate(number=floor_divide(groups.key, width))
    groups = groups.mutate(cell=groups.key - groups.number * width)
    if part == "period" and plan.period_range is not None:
        first, last = plan.period_range
        period = groups.number + (first + start)
        problems = where(period <= last, ibis.literal(0, "int64"), groups.answers)
        return _complete(part, groups.mutate(number=period, problems=problems))
    if not codes:
        return _complete(part, groups)
    texts = [value for value, _ in codes if value is not None]
    groups = groups.mutate(
        name=ibis.array(texts)[groups.number] if texts else ibis.null("string"),  # beyond the last one is null
        problems=where(groups.number < len(codes), ibis.literal(0, "int64"), groups.answers),
    )
    return _complete(part, groups.mutate(number=ibis.literal(0, "int64")))


def _if(condition: Expression) -> Expression:
    """Return true or null, since counts cost less than sums."""
    return where(condition, ibis.literal(True), ibis.null("boolean"))


def _complete(part: Part, groups: Expression) -> Expression:
    """Return groups with all columns. A sum that a table does not have is null or 0."""
    absent = dict.fromkeys(SUMS, ibis.null("float64")) | dict.fromkeys((*COUNTS, "problems"), ibis.literal(0, "int64"))
    absent |= dict.fromkeys(("number", "cell"), ibis.literal(0, "int64"))
    absent |= {"correct": ibis.literal(0.0), "name": ibis.literal("", "string")}
    absent["part"] = ibis.literal(PARTS.index(part), "int64")
    groups = groups.mutate(**{name: value for name, value in absent.items() if name not in groups.columns})
    return groups.select(*KEYS, *COUNTS, *SUMS, "problems")


def _numbers(numbers: list[int]) -> Expression:
    """Return a table of constants, which every engine reads without a temporary table."""
    tables = [ibis.literal(number, "int64").name("part").as_table() for number in numbers]
    return tables[0] if len(tables) == 1 else ibis.union(*tables)
