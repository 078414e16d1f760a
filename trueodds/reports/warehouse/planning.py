"""Reader of a warehouse's table: looks that decide how its columns are read, by the rules for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, get_args

import ibis
import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.inputs.times import COMPACT_DATES, EARLIEST, LATEST, TEN_YEARS, YEARS_MS
from trueodds.inputs.times import UNITS as TIME_UNITS
from trueodds.inputs.times import note as time_note
from trueodds.processes.choices import TrendUnit
from trueodds.reports.schemas import MOST_MINUTES, Unit
from trueodds.reports.table.classes import (
    bare_names,
    check_order_of_counts,
    class_indices,
    one_column,
    order_note,
)
from trueodds.reports.table.reading import Form, choose_columns, no_outcome, unread_note
from trueodds.reports.table.table_content import agreement, correctness
from trueodds.reports.table.table_report import MAX_POINTS, MOST_GROUPS
from trueodds.reports.warehouse.answer_rows import _is_explained, _on_step, all_of, period_of, rows_of, text_of
from trueodds.reports.warehouse.arrivals import within
from trueodds.reports.warehouse.expression import MOST_SMALL, MOST_TABLES
from trueodds.reports.warehouse.plan import GROUPS, Codes, Expression, Group, ReadingPlan, TimeColumn
from trueodds.reports.warehouse.table_source import EMBEDDED, TESTED, EngineError, TableSource
from trueodds.reports.warehouse.terms import at_least, number, total, where
from trueodds.sums.rounding import EXACT, Resolution
from trueodds.sums.steps import _EVIDENCE_ROWS, COARSEST_WITH_NLL, MOST_ROUNDING, _common_steps
from trueodds.texts import alike, plural, short

MOST_VALUES = 10_000
"""Largest number of different labels, or of other values whose meaning is looked up."""
MOST_CLASSES = 1_000
"""Largest number of classes. The SQL text grows with it: for 1,000 classes it has 470 kB."""
MOST_RULED_CLASSES = 100
"""Largest number of classes with the rules for rounded rows and for noise. For 100, their SQL text has 430 kB."""
FLOAT_ERRORS = ("postgres", "bigquery")
"""Engines that stop at a product that is too large or too small for a double."""
FIRST_FAN_OUT = 2
"""First version of DuckDB that passes the rows of a WITH to several aggregates. Earlier ones write all rows first."""
NANOSECONDS_MS = (-9_223_372_036_000, 9_223_372_036_000)
"""Unix milliseconds of the second after the first and before the last time that nanoseconds in 64 bits can hold.

The last one stands for an infinite time.
"""
FAR = ("postgres", "duckdb", "pyspark")
"""Engines that have times beyond the year 9999, or infinite ones."""
SAMPLE = 256
"""Number of rows whose values can show that the table is not rounded."""
UNITS: tuple[Unit, ...] = get_args(Unit)


def plan_of(
    source: TableSource,
    form: Form,
    *,
    trend: TrendUnit | None = None,
) -> ReadingPlan:
    """Look at a table and return how it is read.

    Args:
        source: The table.
        form: Facts about it that it does not state.
        trend: Unit of the periods. None and `auto`: the finest one that a trend shows.

    Raises:
        FileError: A column is missing or has another type, there are no rows, or the labels cannot be understood.
    """
    header = source.header
    if similar := alike((form.label, *form.classes), header):
        label, *renamed = (similar.get(name, name) for name in (form.label, *form.classes))
        plan = plan_of(
            source,
            replace(form, label=label, classes=tuple(renamed)),
            trend=trend,
        )
        words = [f"The column {other!r} is read as {name!r}." for name, other in similar.items()]
        return replace(plan, notes=(*plan.notes, *words))
    if form.scale == "logits":
        raise FileError(
            f"{source.name}: --logits is for files that this process reads; an engine's exp differs in the last digit."
            " Give columns of probabilities, or leave out --engine"
        )
    by_confidence, of_classes, absent = choose_columns(source.name, header, form)
    for name in ("confidence",) if by_confidence else of_classes:
        _check_number(source, name)
    groups = tuple(name for name in GROUPS if name in header)
    counts = _group_counts(source.table, groups, by_confidence)
    moment, note = None, ""
    if "time" in header:
        moment, note, stats = look_at_times(source, "time", counts)
    else:
        stats = {name: values[0] for name, values in source.run(source.table.aggregate(**counts)).items()}
    _check_groups(source, groups, stats)
    unit = None if moment is None else _unit(source, moment, trend)
    notes = [note] if note else []
    has_fan_out = source.engine == EMBEDDED and int(version(EMBEDDED).partition(".")[0]) >= FIRST_FAN_OUT
    few = [name for name in groups if has_fan_out and stats[name] < MOST_SMALL]
    plan = ReadingPlan(
        source=source.name,
        classes=(),
        groups=groups,
        group_codes=tuple((name, codes) for name in few if (codes := _group_codes(source, name))),
        moment=moment,
        unit=unit,
        period_range=_period_range(source, moment, unit) if has_fan_out else None,
        by_list=source.engine == EMBEDDED,
        by_pairs=source.engine == EMBEDDED,
        has_fan_out=has_fan_out,
        has_float_errors=source.engine in FLOAT_ERRORS,
    )
    if by_confidence:
        plan = _of_confidence(source, form, plan, notes, int(stats["low"] or 0))
        unread = unread_note(header, form)
        return replace(plan, notes=(*plan.notes, unread)) if unread else plan
    return _of_classes(source, form, plan, notes, of_classes, form.classes if absent else ())


def _check_number(source: TableSource, name: str) -> None:
    kind = source.table[name].type()
    if kind.is_array():
        raise FileError(
            f"{source.name}: the column {name!r} holds lists ({kind}); allowed are numbers: give a table or a view with"
            " a column for each class. Without --engine, one file with such a column can be read"
        )
    if not (kind.is_numeric() or kind.is_boolean()):
        raise FileError(
            f"{source.name}: the column {name!r} holds {kind}; allowed are numbers: cast it, or name the columns of the"
            " classes with --classes a,b"
        )
    if kind.is_boolean() and source.engine == "postgres":
        raise FileError(
            f"{source.name}: the column {name!r} holds boolean, which PostgreSQL does not take for numbers; allowed are"
            f" numbers: give a view that casts it to integer, or name the columns of the classes with --classes a,b"
        )


def _group_counts(table: Expression, groups: Sequence[str], by_confidence: bool) -> dict[str, Expression]:
    """Return the numbers of rows and of groups as expressions."""
    wanted = {"rows": table.count(), **{name: table[name].nunique() for name in groups}}
    if by_confidence:
        wanted["low"] = where(table.confidence.cast("float64") < number(0.5), number(1), number(0)).sum()
    return wanted


def _check_groups(source: TableSource, groups: Sequence[str], stats: dict[str, Any]) -> None:
    """Check the numbers of rows and of groups.

    Raises:
        FileError: There are no rows, or too many groups.
    """
    if not stats["rows"]:
        raise FileError(f"{source.name} holds no answers; give a table with rows, or files with rows")
    for name in groups:
        if stats[name] > MOST_GROUPS:
            problem = f"{source.name} has {stats[name]:,} different {name}s; at most {MOST_GROUPS:,} are compared"
            raise FileError(f"{problem}: give groups that many answers share, or remove the column")


def _group_codes(source: TableSource, name: Group) -> Codes:
    """Return the values of a group as text, each with a number; none if there are too many for keys of 16 bits."""
    table = source.table.select(value=text_of(source.table[name])).distinct()
    values = source.run(table)["value"]
    ordered = sorted(values, key=lambda value: (value is None, value or ""))
    return tuple((value, k) for k, value in enumerate(ordered)) if len(values) < MOST_SMALL else ()


def time_column(source: TableSource, name: str) -> tuple[TimeColumn, str]:
    """Return how a column of times is read, and a sentence about it (`look_at_times`)."""
    return look_at_times(source, name, {})[:2]


def look_at_times(
    source: TableSource, name: str, beside: dict[str, Expression]
) -> tuple[TimeColumn, str, dict[str, Any]]:
    """Return how a column of times is read, a sentence about it, and other aggregates, by one query.

    Args:
        source: The table.
        name: The column.
        beside: Aggregates of the same table by name. Their values are returned.

    Raises:
        FileError: The column has another type, a gap, a time beyond all years, or numbers of several units.
    """
    column = source.table[name]

    def look(own: dict[str, Expression]) -> tuple[dict[str, int], dict[str, Any]]:
        terms = {f"time_{key}": term for key, term in own.items()}
        found = {key: values[0] for key, values in source.run(source.table.aggregate(**terms, **beside)).items()}
        return {key: int(found[f"time_{key}"] or 0) for key in own}, {key: found[key] for key in beside}

    kind = column.type()
    if kind.is_timestamp() or kind.is_date():
        if source.engine not in TESTED:
            raise EngineError(
                f"{source.name}: the column {name!r} holds {kind}, whose days are not tested on {source.engine};"
                " allowed are whole numbers of Unix time: give a view that has them"
            )
        moment = TimeColumn(column=name)
        wanted = {"gaps": column.isnull().ifelse(1, 0).sum()}
        if source.engine in FAR:
            limits = NANOSECONDS_MS if kind.is_timestamp() and (kind.scale or 0) > 6 else YEARS_MS
            far = within(source.table, moment, *limits)
            wanted["far"] = where(far, ibis.literal(0), where(column.isnull(), ibis.literal(0), ibis.literal(1))).sum()
        counts, others = look(wanted)
        if name == "time" and counts["gaps"]:
            raise FileError(f"{source.name}: the column {name!r} has gaps; allowed is a time in every row")
        if far_rows := counts.get("far", 0):
            raise FileError(
                f"{source.name}: the column {name!r} holds infinite times, or times outside of the years 1 to 9998, in"
                f" {plural(far_rows, 'row')}; allowed is the time of each answer or label: correct these rows, or leave"
                " them out by a view"
            )
        return moment, "", others
    if not kind.is_integer():
        raise FileError(
            f"{source.name}: the column {name!r} holds {kind}; allowed are timestamps and whole numbers of Unix time:"
            " cast it"
        )
    size = column.cast("int64").abs()
    among: dict[str, Expression] = {"seconds": size < LATEST}
    for unit, per_second in TIME_UNITS.items():
        if per_second > 1:
            among[unit] = (size >= EARLIEST * per_second) & (size < LATEST * per_second)
    compact = (column >= COMPACT_DATES[0]) & (column <= COMPACT_DATES[1])
    counts, others = look(
        {
            **{unit: condition.ifelse(1, 0).sum() for unit, condition in among.items()},
            "compact": compact.ifelse(1, 0).sum(),
            "far": (size >= TEN_YEARS).ifelse(1, 0).sum(),
            "rows": source.table.count() if name == "time" else column.count(),
        }
    )
    units = [unit for unit in among if counts[unit]]
    if not counts["rows"]:
        return TimeColumn(column=name, per_second=1), "", others
    if counts["compact"] or len(units) != 1 or counts[units[0]] != counts["rows"]:
        raise FileError(
            f"{source.name}: the column {name!r} holds whole numbers that are not Unix time in one unit"
            f" ({', '.join(units) or 'none fits'}); allowed are timestamps, or Unix seconds, milli-, micro- or"
            " nanoseconds in every row"
        )
    note = time_note(name, units[0], near_1970=not counts["far"])
    return TimeColumn(column=name, per_second=TIME_UNITS[units[0]]), note, others


def _unit(source: TableSource, moment: TimeColumn, trend: TrendUnit | None) -> Unit:
    """Return the unit of the periods, chosen as for a file."""
    if trend is not None and trend != "auto":
        return trend
    periods = {unit: period_of(source.table, moment, unit) for unit in ("minute", "hour", "day")}
    keyed = source.table.select(**periods)
    wanted = {unit: keyed[unit].nunique() for unit in periods}
    counts = source.run(keyed.aggregate(**wanted, first=keyed.minute.min(), last=keyed.minute.max()))
    if counts["last"][0] - counts["first"][0] < MOST_MINUTES and counts["minute"][0] <= MOST_MINUTES:
        return "minute"
    return next((unit for unit in UNITS[1:3] if counts[unit][0] <= MAX_POINTS), "month")


def _period_range(source: TableSource, moment: TimeColumn | None, unit: Unit | None) -> tuple[int, int] | None:
    """Return the first and the last period; None if they are too far apart for keys of 16 bits."""
    if moment is None or unit is None:
        return None
    period = period_of(source.table, moment, unit)
    found = source.run(source.table.aggregate(first=period.min(), last=period.max()))
    first, last = found["first"][0], found["last"][0]
    if first is None:
        return None
    return (first, last) if last - first + 2 <= MOST_TABLES * MOST_SMALL else None


def _values(source: TableSource, name: str) -> list[Any]:
    """Return the different values of a column, sorted as text.

    Raises:
        FileError: There are too many.
    """
    column = source.table[name]
    if column.type().is_decimal():
        column = column.cast("float64")
    values = source.run(source.table.select(value=column).distinct().limit(MOST_VALUES + 1))["value"]
    if len(values) > MOST_VALUES:
        raise FileError(
            f"{source.name}: the column {name!r} has more than {MOST_VALUES:,} different values, such as"
            f" {short(values[0])}; name the column of the classes with --label"
        )
    if values and isinstance(values[0], float | int):
        return sorted(values, key=lambda value: (value is None or value != value, value or 0))
    return sorted(values, key=lambda value: "" if value is None else str(value))


def _texts(values: Sequence[Any], rows: int = 0) -> Texts:
    """Return values as texts, repeated up to a number of rows."""
    return Texts.of(values, np.resize(np.arange(len(values), dtype=np.intp), max(rows, len(values))))


def _codes(values: Sequence[Any], meaning: Sequence[int]) -> Codes:
    """Pair values with their meanings. NaN is missing, as null is."""
    return tuple((None if value != value else value, int(code)) for value, code in zip(values, meaning, strict=True))


def _of_classes(
    source: TableSource,
    form: Form,
    plan: ReadingPlan,
    notes: list[str],
    columns: tuple[str, ...],
    class_names: tuple[str, ...],
) -> ReadingPlan:
    """Plan a table with probabilities."""
    if len(columns) > MOST_CLASSES:
        raise FileError(
            f"{source.name} has {len(columns):,} columns of classes; --engine takes at most {MOST_CLASSES:,}. Give the"
            " columns confidence, predicted and label in place of the probabilities, or leave out --engine"
        )
    values = _values(source, form.label)
    labels = _texts(values)
    if len(columns) == 1:
        classes, note = one_column(source.name, columns[0], labels, classes=class_names, positive=form.positive)
        notes += [note] if note else []
    else:
        classes = bare_names(columns, labels)
    beside_values = _values(source, "predicted") if "predicted" in source.header else []
    beside = _texts(beside_values) if beside_values else None
    label_V, scheme = class_indices(source.name, "label", labels, classes, first=form.first_label, beside=beside)
    predicted: Codes = ()
    if beside is not None:
        own = class_indices(
            source.name, "predicted class", beside, classes, first=form.first_label, beside=labels
        ).index_N
        predicted = _codes(beside_values, own.tolist())
    ordered = bool(form.classes)
    how = "" if scheme == "numbers" and ordered else order_note(scheme, classes, form.first_label or 0)
    notes += [how] if how else []
    plan = replace(
        plan,
        classes=classes,
        columns=columns,
        label=form.label,
        labels=_codes(values, label_V.tolist()),
        predicted=predicted,
        positive=_positive(form, classes),
        notes=tuple(notes),
    )
    plan = replace(plan, resolution=form.resolution or _shown_resolution(source, plan))
    has_many = len(columns) > MOST_RULED_CLASSES
    if has_many and plan.resolution.step is not None:
        raise rules_error(source, plan, f"is rounded to steps of {plan.resolution.step:g}")
    if scheme != "names" and not ordered:
        rows = rows_of(source.table, plan, quick=has_many)
        rows = rows.filter(rows.problem == 0) if has_many else rows
        pairs = rows.filter(rows.label_code >= 0).group_by("class_code", "label_code")
        cells = source.run(pairs.aggregate(count=ibis._.count()))
        counts_CC = np.zeros((len(classes), len(classes)), np.int64)
        counts_CC[cells["class_code"], cells["label_code"]] = cells["count"]
        check_order_of_counts(source.name, counts_CC, classes)
    return plan


def rules_error(source: TableSource, plan: ReadingPlan, problem: str) -> FileError:
    """Build the error for a table of many classes with rows that need the rules for rounding and noise."""
    return FileError(
        f"{source.name} {problem}. It has {len(plan.columns):,} columns of classes, and with more than"
        f" {MOST_RULED_CLASSES} --engine takes exact probabilities only. Correct these rows, leave out --engine, or"
        " give the columns confidence, predicted and label in place of the probabilities"
    )


def _positive(form: Form, classes: Sequence[str]) -> int | None:
    from trueodds.sums.positive import PositiveClass

    return None if form.positive is None else PositiveClass.of(form.positive, classes).index


def _of_confidence(source: TableSource, form: Form, plan: ReadingPlan, notes: list[str], low: int) -> ReadingPlan:
    """Plan a table with the probability of the predicted class alone."""
    header = source.header
    resolution = form.resolution or EXACT
    if "correct" in header:
        values = _values(source, "correct")
        known_V, right_V = correctness(source.name, _texts(values))
        correct = _codes(values, np.where(known_V, right_V.astype(int), -1).tolist())
        classes: tuple[str, ...] = ()
        predicted: Codes = ()
        if "predicted" in header:
            names = _values(source, "predicted")
            texts = _texts(names).as_classes()
            classes, predicted = texts.values, _codes(names, texts.code_N.tolist())
        plan = replace(plan, classes=classes, predicted=predicted, correct=correct)
        label_names: tuple[str, ...] = ()
    elif "predicted" in header and form.label in header:
        names, values = _values(source, "predicted"), _values(source, form.label)
        rows = max(len(names), len(values))
        both, labelled_N, _ = agreement(
            source.name, _texts(names, rows), _texts(values, rows), form.classes, form.first_label
        )
        label_V = class_indices(
            source.name, "label", _texts(values), both.values, first=form.first_label, beside=_texts(names)
        ).index_N
        classes = label_names = both.values
        plan = replace(
            plan,
            classes=classes,
            label=form.label,
            labels=_codes(values, label_V.tolist()),
            predicted=_codes(names, both.code_N[: len(names)].tolist()),
        )
        del labelled_N
    else:
        raise no_outcome(source.name, header)
    if low and len(label_names) == 2:
        notes.append(
            f"{low:,} answers of two classes have a confidence below one half. confidence is the probability of the"
            " class in predicted: if it is that of one class in every answer, give --classes confidence and --positive"
            " CLASS."
        )
    positive = None
    if form.positive is not None:
        if not classes:
            raise FileError(f"{source.name} names no predicted classes, which a positive class needs")
        if form.positive in classes or len(classes) < 2:
            classes = (*(other for other in classes if other != form.positive), form.positive)
            plan = _reorder(plan, classes)
        positive = _positive(form, classes)
    return replace(plan, positive=positive, resolution=resolution, notes=tuple(notes))


def _reorder(plan: ReadingPlan, classes: tuple[str, ...]) -> ReadingPlan:
    """Return a plan with the classes in another order."""
    place = [classes.index(name) for name in plan.classes]

    def move(codes: Codes) -> Codes:
        return tuple((value, place[code] if code >= 0 else code) for value, code in codes)

    return replace(plan, classes=classes, predicted=move(plan.predicted), labels=move(plan.labels))


def _shown_resolution(source: TableSource, plan: ReadingPlan) -> Resolution:
    """Return the resolution that the rows show by sums off 1 (`trueodds.sums.steps.inferred_step`).

    A few rows almost always show that the table is not rounded. Otherwise one more aggregate decides.
    """
    table = source.table
    given = {f"p{k}": table[column].cast("float64") for k, column in enumerate(plan.columns)}
    sample = source.run(table.select(**given).limit(SAMPLE))
    sample_NC: npt.NDArray[np.float64] = np.array(list(sample.values()), np.float64).T
    if len(given) == 1:
        sample_NC = np.concatenate([1 - sample_NC, sample_NC], axis=1)
    steps = _common_steps(sample_NC)
    if steps is None:
        return EXACT
    rows = table.select(**given)
    if len(given) == 1:
        rows = rows.select(p0=number(1) - rows.p0, p1=rows.p0)
    names = list(rows.columns)
    rows = rows.mutate(**{name: at_least(rows[name], number(0)) for name in names})
    values = [rows[name] for name in names]
    rows = rows.mutate(
        excess=total(values) - number(1),
        above=total([where(value > number(0), number(1), number(0)) for value in values]),
    )
    wanted: dict[str, Expression] = {"rows": rows.count()}
    for place, step in enumerate(steps):
        on = all_of([_on_step(rows[name], step) for name in names])
        size = rows.excess.abs()
        conditions = {
            "on": on,
            "near": size <= number(step / 2),
            "explained": _is_explained(rows.excess, rows.above, len(names), step),
            "narrow": size <= number(MOST_ROUNDING + step / 2),
        }
        wanted |= {f"{name}{place}": test.ifelse(1, 0).sum() for name, test in conditions.items()}
    sums = {name: values[0] for name, values in source.run(rows.aggregate(**wanted)).items()}
    n = sums["rows"]
    for place, step in enumerate(steps):
        off = n - sums[f"near{place}"]
        if sums[f"on{place}"] < n or not off or sums[f"explained{place}"] < n:
            continue
        if (n - sums[f"narrow{place}"]) / n > 1 / 4:
            continue
        if step > COARSEST_WITH_NLL and (n < _EVIDENCE_ROWS or off / n > 2 / 3):
            continue
        return Resolution(step, "inferred")
    return EXACT
