"""Rows of the expression: from a table's columns to the confidence, the outcome and the losses of each answer."""

from __future__ import annotations

from collections.abc import Sequence

import ibis

from trueodds.reports.schemas import Unit
from trueodds.reports.warehouse.plan import UNSEEN, Expression, ReadingPlan, TimeColumn
from trueodds.reports.warehouse.rounded_terms import with_rounded_losses
from trueodds.reports.warehouse.terms import (
    at_least,
    at_most,
    code,
    largest,
    number,
    square,
    total,
    value_at,
    where,
)
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import BELOW_ZERO, ROW_SUM_TOLERANCE
from trueodds.sums.losses import SMALLEST_PROBABILITY
from trueodds.sums.positive import ROUNDING
from trueodds.sums.rounding import LEAST_REST, Resolution
from trueodds.sums.steps import most_rounding

PROBLEMS = {
    1: "a gap",
    2: "a number outside [0, 1]",
    3: "a sum other than 1",
    4: "a value between the steps",
    5: "another value than before",
    6: "no predicted class",
    7: "another predicted class than that of the highest probability",
}
"""Kinds of rows that cannot be counted."""
GAP, OUTSIDE, SUM, OFF_STEP, CHANGED, UNNAMED, DISAGREES = PROBLEMS
_QUICK = 0.9 * ROW_SUM_TOLERANCE
"""Distance of a sum from 1 that needs no further check."""
_DECIMALS = range(2, 7)
_UNITS: dict[Unit, tuple[str, int]] = {"minute": ("m", 60), "hour": ("h", 3600), "day": ("D", 86400)}
UNUSUAL = -1
"""Problem of a row that the quick rules cannot decide."""


def rows_of(table: Expression, plan: ReadingPlan, *, quick: bool = False) -> Expression:
    """Return one row for each answer, with the columns that the sums are made of.

    The columns are `confidence` (as calibration is measured by), `label_code`, `correct`, `nll`, `brier`, `class_code`,
    `problem` (0, a kind of `PROBLEMS`, or `UNUSUAL`), the groups, and those of p(positive) and of rounding, if the plan
    has them.

    Args:
        table: The table.
        plan: Its plan.
        quick: Whether to leave out the rules for rows that are seldom: negative noise, and sums that rounding explains.
            Such rows get the problem `UNUSUAL`.
    """
    groups = {f"group_{name}": text_of(table[name]) for name in plan.groups}
    if plan.moment is not None and plan.unit is not None:
        groups["period"] = period_of(table, plan.moment, plan.unit)
    else:
        groups["period"] = ibis.literal(0, "int64")
    rows = _of_confidence(table, plan, groups) if plan.by_confidence else _of_classes(table, plan, groups, quick)
    return rows.mutate(correct=where(rows.label_code == rows.class_code, number(1), number(0)))


def text_of(column: Expression) -> Expression:
    """Return a column as text."""
    return column if column.type().is_string() else column.cast("string")


def period_of(table: Expression, moment: TimeColumn, unit: Unit) -> Expression:
    """Return the number of the period of each row since 1970; for months, 12 year + month."""
    column = table[moment.column]
    if moment.per_second and unit == "month":
        column, moment = floor_divide(milliseconds(column, moment), 1000).as_timestamp("s"), TimeColumn(column="")
    if not moment.per_second:
        if column.type().is_date():
            column = column.cast("timestamp")
        if unit == "month":
            return (column.year() * 12 + column.month() - 1).cast("int64")
        code, seconds = _UNITS[unit]
        start = column.truncate("D") if unit == "day" else column.truncate(code)
        return _floor_quotient(start.epoch_seconds(), seconds)
    if moment.per_second <= 1000:
        return _floor_quotient(column, moment.per_second * _UNITS[unit][1])
    return _floor_quotient(milliseconds(column, moment), 1000 * _UNITS[unit][1])


def _floor_quotient(value: Expression, size: int) -> Expression:
    """Divide whole numbers of less than 2^53, rounded down, by a quotient of doubles, which engines compute fastest.

    A quotient a / b that is no whole number is at least 1 / b away from the next one. Its rounding error is at most
    2^-53 |a / b|, which is less for |a| < 2^53.
    """
    return (value.cast("float64") / number(size)).floor().cast("int64")


def milliseconds(column: Expression, moment: TimeColumn) -> Expression:
    """Return the Unix milliseconds of a column of whole numbers, rounded half to even as Python rounds them."""
    value = column.cast("int64")
    if moment.per_second <= 1000:
        return value * (1000 // moment.per_second)
    size = moment.per_second // 1000
    whole = floor_divide(value, size)
    rest = value - whole * size
    up = (rest * 2 > size) | ((rest * 2 == size) & (whole % 2 != 0))
    return whole + up.ifelse(1, 0)


def floor_divide(value: Expression, size: int) -> Expression:
    """Divide whole numbers, rounded down also below 0, in arithmetic that is the same in every engine."""
    rest = ((value % size) + size) % size
    return ((value - rest) / number(size)).cast("int64")


def _of_classes(table: Expression, plan: ReadingPlan, groups: dict[str, Expression], quick: bool) -> Expression:
    """Return the rows of a table with the probabilities of all classes."""
    names = [f"p{k}" for k in range(len(plan.classes))]
    given = [table[column].cast("float64") for column in plan.columns]
    if len(given) == 1:
        given = [number(1) - given[0], given[0]]
    rows = table.select(
        label_code=code(table[plan.label], plan.labels, by_list=plan.by_list),
        named=code(table["predicted"], plan.predicted, by_list=plan.by_list)
        if plan.predicted
        else ibis.literal(UNSEEN, "int64"),
        **groups,
        **dict(zip(names, given, strict=True)),
    )
    if not quick:
        rows = _check(rows, names, plan.resolution.step)
    rows, top = largest(rows, names, by_pairs=plan.by_pairs)
    values = [rows[name] for name in names]
    rows = rows.mutate(
        top=top,
        true=value_at(rows.label_code, values),
        squares=total([square(value, is_guarded=plan.has_float_errors) for value in values]),
    )
    if quick:
        near = (total(values) - number(1)).abs() < number(_QUICK)
        sound = all_of([near, *(value >= number(0) for value in values)])  # false or null for a gap
        changed = (rows.label_code == UNSEEN, ibis.literal(CHANGED))
        rows = rows.mutate(problem=ibis.cases(changed, (sound, ibis.literal(0)), else_=ibis.literal(UNUSUAL)))
    else:
        rows = rows.mutate(problem=where(rows.label_code == UNSEEN, ibis.literal(CHANGED), rows.problem))
    top = rows.top
    confidence = ibis.cases((rows.problem != 0, number(0)), (top > number(1), number(1)), else_=top)
    rows = rows.mutate(
        class_code=ibis.cases(
            *((rows[name] >= rows.top, ibis.literal(k, "int64")) for k, name in enumerate(names)),
            else_=ibis.literal(0, "int64"),
        ),
        confidence=_resolve(confidence, plan.resolution),
    )
    if plan.predicted:
        differs = (rows.problem == 0) & (rows.named != rows.class_code)
        rows = rows.mutate(problem=where(differs, ibis.literal(DISAGREES), rows.problem))
    step = plan.resolution.step
    if step is None:
        # Each step names a term of the one before, so that engines compute it once for a row.
        rows = rows.mutate(
            loss=rows.squares - number(2) * rows.true + number(1),
        )
        rows = rows.mutate(
            nll=_nll(rows.true),
            brier=at_least(rows.loss, number(0)),
            is_zero=where(rows.true <= number(0), ibis.literal(1), ibis.literal(0)),
            least_nll=number(0),
        )
    else:
        rows = with_rounded_losses(rows, names, "label_code", step, "top_")
        rows = rows.mutate(
            nll=rows.top_nll,
            brier=rows.top_brier,
            least_nll=rows.top_least,
            is_zero=where(rows.true <= number(0), ibis.literal(1), ibis.literal(0)),
        )
    if plan.positive is None:
        return rows
    p = at_most(at_least(rows[names[plan.positive]], number(0)), number(1))
    rows = rows.mutate(
        p=_resolve(p, plan.resolution),
        positive=where(rows.label_code == plan.positive, number(1), number(0)),
    )
    return _with_losses_of_positive(rows, plan)


def _of_confidence(table: Expression, plan: ReadingPlan, groups: dict[str, Expression]) -> Expression:
    """Return the rows of a table with the probability of the predicted class alone."""
    given = table[plan.confidence].cast("float64")
    if plan.correct:
        right = code(table["correct"], plan.correct)
        known = (
            code(table["predicted"], plan.predicted, by_list=plan.by_list)
            if plan.predicted
            else ibis.literal(0, "int64")
        )
        # A label equals the class if the answer was right, and is beyond all classes if it was wrong.
        label = ibis.cases((right == 1, known), (right == 0, ibis.literal(len(plan.classes) + 1, "int64")), else_=right)
    else:
        known, label = (
            code(table["predicted"], plan.predicted, by_list=plan.by_list),
            code(table[plan.label], plan.labels, by_list=plan.by_list),
        )
    rows = table.select(given=given, class_code=known, label_code=label, **groups)
    clean = where((rows.given < number(0)) & (rows.given >= number(-BELOW_ZERO)), number(0), rows.given)
    inside = (clean >= number(0)) & (clean <= number(1))
    problem = [
        (rows.given.isnull(), ibis.literal(GAP)),
        (inside.ifelse(0, 1) == 1, ibis.literal(OUTSIDE)),
        ((rows.label_code == UNSEEN) | (rows.class_code == UNSEEN), ibis.literal(CHANGED)),
    ]
    if plan.predicted:
        problem.append((rows.class_code < 0, ibis.literal(UNNAMED)))
    step = plan.resolution.step
    if step is not None:
        problem.append((_on_step(clean, step).ifelse(0, 1) == 1, ibis.literal(OFF_STEP)))
    rows = rows.mutate(clean=where(inside, clean, number(0)), problem=ibis.cases(*problem, else_=ibis.literal(0)))
    rows = rows.mutate(
        confidence=_resolve(rows.clean, plan.resolution),
        nll=ibis.null("float64"),
        brier=ibis.null("float64"),
        least_nll=number(0),
        is_zero=ibis.literal(0),
    )
    if plan.positive is None:
        return rows
    other = number(1) - rows.confidence
    edge = (other * number(CELLS) + number(0.5)).floor() / number(CELLS)
    rows = rows.mutate(other=where((other - edge).abs() <= number(ROUNDING), edge, other))
    is_top = rows.class_code == plan.positive
    rows = rows.mutate(
        p=where(is_top, rows.confidence, rows.other),
        positive=where(
            (is_top & (rows.label_code == rows.class_code)) | (~is_top & (rows.label_code != rows.class_code)),
            number(1),
            number(0),
        ),
    )
    return _with_losses_of_positive(rows, plan)


def _with_losses_of_positive(rows: Expression, plan: ReadingPlan) -> Expression:
    """Add `p_nll` and `p_brier` of p(positive), and `p` as calibration is measured by."""
    step = plan.resolution.step
    if step is None:
        is_positive = rows.positive == number(1)
        return rows.mutate(
            p_nll=_nll(where(is_positive, rows.p, number(1) - rows.p)),
            p_brier=square((rows.p - rows.positive).abs(), is_guarded=plan.has_float_errors),
        )
    rows = rows.mutate(p_other=number(1) - rows.p, p_class=rows.positive.cast("int64"))
    rows = with_rounded_losses(rows, ["p_other", "p"], "p_class", step, "pos_")
    return rows.mutate(p_nll=rows.pos_nll, p_brier=rows.pos_brier / number(2), p=_resolve(rows.p, plan.resolution))


def _nll(true: Expression) -> Expression:
    least, most = number(SMALLEST_PROBABILITY), number(1)
    return -ibis.cases((true < least, least), (true > most, most), else_=true).ln()


def _resolve(confidence: Expression, resolution: Resolution) -> Expression:
    """Return confidences as `Resolution.confidence` does."""
    if resolution.step is None:
        return confidence
    least = LEAST_REST * resolution.step
    return at_most(at_least(confidence, number(least)), number(1 - least))


def _check(rows: Expression, names: Sequence[str], step: float | None) -> Expression:
    """Add `problem`, and set negative noise to 0. The values of a row with a problem become those of a sound row."""
    bounded = []
    for name in names:
        inside = (rows[name] >= number(-BELOW_ZERO)) & (rows[name] <= number(1 + ROW_SUM_TOLERANCE))
        bounded.append((inside.ifelse(0, 1) == 1, ibis.literal(OUTSIDE)))
    gaps = [(rows[name].isnull() | rows[name].isnan(), ibis.literal(GAP)) for name in names]
    rows = rows.mutate(problem=ibis.cases(*gaps, *bounded, else_=ibis.literal(0)))
    sound = rows.problem == 0
    rows = rows.mutate(
        **{name: where(sound & (rows[name] >= number(0)), rows[name], number(0)) for name in names},
    )
    values = [rows[name] for name in names]
    rows = rows.mutate(excess=total(values) - number(1))
    near = rows.excess.abs() <= number(ROW_SUM_TOLERANCE)
    count = total([where(value > number(0), number(1), number(0)) for value in values])
    if step is not None:
        off = [(_on_step(value, step).ifelse(0, 1) == 1, ibis.literal(OFF_STEP)) for value in values]
        explained = near | _is_explained(rows.excess, count, len(names), step)
        checks = [*off, (explained.ifelse(0, 1) == 1, ibis.literal(SUM))]
        return rows.mutate(problem=where(rows.problem != 0, rows.problem, ibis.cases(*checks, else_=ibis.literal(0))))
    within = rows.excess.abs() <= number(most_rounding(len(names)))
    ways = [
        (
            all_of([(value - _round(value, decimals)).abs() < number(1e-7) for value in values])
            & _is_explained(rows.excess, count, len(names), 10.0**-decimals),
            ibis.literal(0),
        )
        for decimals in _DECIMALS
    ]
    return rows.mutate(
        problem=ibis.cases(
            (rows.problem != 0, rows.problem),
            (near, ibis.literal(0)),
            (within.ifelse(0, 1) == 1, ibis.literal(SUM)),
            *ways,
            else_=ibis.literal(SUM),
        )
    )


def all_of(conditions: Sequence[Expression]) -> Expression:
    """Return whether all conditions hold, as a balanced tree: Ibis and engines limit the depth of an expression."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return all_of(conditions[:half]) & all_of(conditions[half:])


def _round(value: Expression, decimals: int) -> Expression:
    size = number(10.0**decimals)
    return (value * size + number(0.5)).floor() / size


def _on_step(value: Expression, step: float) -> Expression:
    """Return whether a value is a multiple of the step, as `trueodds.sums.steps.on_steps` decides it."""
    nearest = (value / number(step) + number(0.5)).floor() * number(step)
    return (value - nearest).abs() <= number(near_step(step))


def near_step(step: float) -> float:
    """Return the largest distance of a multiple of the step, stored in double precision, from it."""
    return min(1e-7, step / 20)


def _is_explained(excess: Expression, above_zero: Expression, classes: int, step: float) -> Expression:
    """Return whether rounding explains a row's sum (`trueodds.sums.steps.explained_by_rounding`)."""
    slack = 1e-7
    return (excess <= number(step / 2) * above_zero + number(slack)) & (excess >= number(-step / 2 * classes - slack))
