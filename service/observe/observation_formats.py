"""Bodies of POST /observe as observations: JSON, and lines of JSON or CSV. No I/O."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import orjson

from service.bulk.lines import CsvLines, JsonLines, number, whole_number
from service.errors import Refusal, ServiceError
from service.http.error_answers import RefusedRowsError, bad_row
from service.observe.observation import (
    ALLOWED,
    CallDefaults,
    NamedNumbers,
    Observation,
    RowError,
    check_source,
    observation_of,
)
from service.predict.options import check_tag
from trueodds.bundle import ActAlone
from trueodds.calibrators.conformal import MOST_ROWS
from trueodds.errors import ConfigError
from trueodds.inputs.sources import ConfidenceSource
from trueodds.sums.rounding import Resolution
from trueodds.texts import alike, as_name, short

DEFAULT_KEYS = tuple(field.name for field in fields(CallDefaults) if field.name != "now_ms")
"""Keys of a JSON body for all rows, beside `observations`."""
SET = "set"
"""Column of conformal sets, unless a class has this name."""
TABLE = tuple(name for name in ALLOWED if name not in ("probabilities", "logits", "logprobs", "votes"))
"""Columns of a table that are not classes."""
NO_CLASSES = ("label", "correct")
"""Columns for true labels in other tables. They are not taken for classes."""
COLUMNS = (
    "a header with id, and either a column per class, named like it, or confidence (or verbalised) and predicted (or"
    " index); optionally model, version, tag, time, propensity, confidence_source and set. Send true labels"
    " to POST /feedback"
)


_NUMBERS: dict[str, Callable[[str, str], float]] = {
    "confidence": number,
    "propensity": number,
    "index": whole_number,
}
"""Numeric columns, with the readers of their cells."""


def defaults_of(
    model: str | None,
    version: str | None,
    classes: str | None,
    positive: str | None,
    tag: str | None,
    shadow: bool,
    act_alone: str | None = None,
    ordered: bool = False,
    confidence_source: ConfidenceSource | None = None,
    resolution: str | None = None,
    set_level: float | None = None,
    set_rows: int | None = None,
) -> CallDefaults:
    """Return the values that a query gives for all rows. Class names are separated by commas and quoted as in CSV.

    Raises:
        ServiceError: 422 for invalid class names, an invalid tag, or an invalid level or number of rows of sets.
    """
    names = None
    if classes is not None:
        try:
            cells = next(csv.reader([classes], skipinitialspace=True), [])
        except csv.Error:  # a line break outside quotes
            raise ServiceError(
                422,
                "invalid_parameter",
                f"classes is {short(classes)}, which is not one line of CSV; separate the names by commas",
            ) from None
        names = check_classes([name.strip() for name in cells])
    promise = None if act_alone is None else promise_of(act_alone)
    now = time.time_ns() // 1_000_000
    return CallDefaults(
        now,
        model,
        version,
        names,
        check_tag(tag, "tag"),
        shadow,
        positive,
        promise,
        ordered=ordered,
        confidence_source=confidence_source,
        resolution=None if resolution is None else resolution_of(resolution),
        **sets_of(set_level, set_rows),
    )


def sets_of(level: Any, rows: Any) -> dict[str, Any]:
    """Check the level of conformal sets, and the number of their calibration rows.

    Raises:
        ServiceError: 422 for other values, or for rows without a level.
    """
    if level is not None and not (type(level) is float and 0 < level < 1):
        raise ServiceError(422, "invalid_parameter", f"set_level is {short(level)}; allowed is (0, 1), such as 0.9")
    if rows is not None and not (type(rows) is int and 1 <= rows <= MOST_ROWS):
        message = f"set_rows is {short(rows)}; allowed are whole numbers from 1 to 2^53 - 1"
        raise ServiceError(422, "invalid_parameter", message)
    if rows is not None and level is None:
        raise ServiceError(422, "invalid_parameter", "set_rows is given without set_level; give both, or set_level")
    return {"set_level": level, "set_rows": rows}


def resolution_of(value: Any) -> Resolution:
    """Read a resolution: a step such as 0.01, or "exact".

    Raises:
        ServiceError: 422 for anything else.
    """
    try:
        return Resolution.of(value)
    except ConfigError as error:
        raise ServiceError(422, "invalid_parameter", str(error)) from None


def promise_of(value: Any) -> ActAlone:
    """Read a promise to act alone: a text such as threshold=.93,risk=.05,confidence=.95, or an object with `tags` too.

    Raises:
        ServiceError: 422 for anything else.
    """
    try:
        return ActAlone.of_text(value) if isinstance(value, str) else ActAlone.of_tree(value, "act_alone")
    except ConfigError as error:
        raise ServiceError(422, "invalid_parameter", str(error)) from None


def check_classes(classes: Any) -> tuple[str, ...]:
    """Return class names: at least two, without repetition.

    Raises:
        ServiceError: 422 for anything else.
    """
    names = tuple(map(as_name, classes)) if isinstance(classes, list | tuple) else ()
    sound = all(isinstance(name, str) and name and name.isprintable() and name == name.strip() for name in names)
    if not sound or len(names) < 2 or len(set(names)) < len(names):
        expected = "expected at least two different names without blanks at their ends, in the order of the numbers"
        message = f"classes is {short(classes)}; {expected}"
        raise ServiceError(422, "invalid_parameter", message)
    return names


def parse(tree: Any, defaults: CallDefaults) -> tuple[CallDefaults, list[Observation]]:
    """Read the rows of a JSON body: one observation, or `{"observations": [...]}` with values for all rows beside it.

    Raises:
        ServiceError: The body has another shape.
        RefusedRowsError: Some rows have another shape.
    """
    if not isinstance(tree, dict):
        raise _shape_error(f"the body is {short(tree)}")
    rows = [tree]
    if "observations" in tree:
        if extra := tree.keys() - {"observations", *DEFAULT_KEYS}:
            raise _shape_error(f"unknown key {short(min(extra))} beside observations")
        if not isinstance(tree["observations"], list) or not tree["observations"]:
            raise _shape_error("observations must be a list of at least one row")
        rows, defaults = tree["observations"], _with_body(tree, defaults)
    read = [observation_of(number, row, defaults) for number, row in enumerate(rows)]
    if refusals := [row for row in read if isinstance(row, Refusal)]:
        raise RefusedRowsError(refusals, len(rows))
    return defaults, [row for row in read if isinstance(row, Observation)]


def _with_body(tree: dict[str, Any], defaults: CallDefaults) -> CallDefaults:
    beside = {key: tree[key] for key in DEFAULT_KEYS if tree.get(key) is not None}
    for key in beside:
        if getattr(defaults, key):
            message = f"{key} is given both beside observations and in the query; give it once"
            raise ServiceError(422, "invalid_parameter", message)
    if isinstance(classes := beside.get("classes"), dict):
        if classes.keys() != {"names", "ordered"}:
            raise _shape_error(f'classes is {short(classes)}; an object has {{"names": [...], "ordered": true}}')
        if defaults.ordered or "ordered" in beside:
            raise ServiceError(422, "invalid_parameter", "ordered is given twice; give it once, in classes")
        beside |= {"classes": classes["names"], "ordered": classes["ordered"]}
    if "classes" in beside:
        beside["classes"] = check_classes(beside["classes"])
    for key in ("shadow", "ordered"):
        if not isinstance(beside.get(key, False), bool):
            raise _shape_error(f"{key} is {short(beside[key])}; allowed are true and false")
    if "resolution" in beside:
        beside["resolution"] = resolution_of(beside["resolution"])
    if "confidence_source" in beside:
        try:
            check_source(beside["confidence_source"])
        except RowError as error:
            raise ServiceError(422, "invalid_parameter", str(error)) from None
    if "act_alone" in beside:
        beside["act_alone"] = promise_of(beside["act_alone"])
    if {"set_level", "set_rows"} & beside.keys():
        beside |= sets_of(beside.get("set_level", defaults.set_level), beside.get("set_rows", defaults.set_rows))
    if "positive" in beside:
        beside["positive"] = as_name(beside["positive"])
        if not isinstance(beside["positive"], str):
            raise _shape_error(f"positive is {short(beside['positive'])}; expected the name of one of two classes")
    return replace(defaults, **beside)


def _shape_error(problem: str) -> ServiceError:
    example = '{"observations": [{"id": ..., "probabilities": [...]}, ...], "model": ..., "version": ...}'
    return ServiceError(422, "invalid_body", f"{problem}; expected an observation, or {example}")


def json_lines(defaults: CallDefaults) -> JsonLines[Observation]:
    """Return a reader of observations with one JSON object per line."""
    return JsonLines(lambda number, value: observation_of(number, value, defaults))


def csv_lines(defaults: CallDefaults, form: str) -> CsvLines[Observation]:
    """Return a reader of observations in CSV: a column of `form` numbers per class, or confidence and predicted."""

    table = tuple(name for name in TABLE if name != SET) if SET in (defaults.classes or ()) else TABLE

    def read(row: int, cells: dict[str, str]) -> Observation | Refusal:
        value: dict[str, Any] = {name: cells[name] for name in table if cells.get(name)}
        names = tuple(name for name in cells if name not in table)
        try:
            if names:
                held = [name for name in names if cells[name] or form != "logprobs"]
                numbers = [cells[name] if form == "verbalised" else number(name, cells[name]) for name in held]
                value[form] = NamedNumbers(tuple(held), numbers)
            for name, read_cell in _NUMBERS.items():
                if name in value:
                    value[name] = read_cell(name, value[name])
            if SET in value:
                value[SET] = set_of_cell(value[SET])
        except ValueError as error:
            return bad_row(row, cells["id"], str(error))
        return observation_of(row, value, defaults)

    return CsvLines(partial(header_of, table=table), read, COLUMNS)


def set_of_cell(cell: str) -> list[Any]:
    """Return the classes of a set in a cell: a list in JSON.

    Raises:
        RowError: The cell holds something else.
    """
    try:
        found = orjson.loads(cell)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, list):
        expected = """expected a list of class names in JSON, such as ["a", "b"] or []"""
        cure = " If set is a class, give the names of all classes in ?classes=" if _is_number(cell) else ""
        raise RowError(f"set is {short(cell)}; {expected}.{cure}")
    return found


def _is_number(cell: str) -> bool:
    try:
        number(SET, cell)
    except ValueError:
        return False
    return True


def header_of(cells: list[str], table: Sequence[str] = TABLE) -> list[str] | None:
    """Return the keys for a table's columns; None if they are not those of observations.

    Keys may be spelled differently (ID, Predicted); see `names.alike`. A column that can be a class is a class.
    """
    keys = {written: key for key, written in alike(table, cells).items()}
    as_keys = [keys.get(cell, cell) for cell in cells]
    names = (
        as_keys if set(as_keys) <= set(table) else [keys[cell] if keys.get(cell) == "id" else cell for cell in cells]
    )
    return names if is_header(names, table) else None


def is_header(cells: list[str], table: Sequence[str] = TABLE) -> bool:
    """Return whether the names are those of a table of observations.

    Args:
        cells: Names of the columns.
        table: Names that are not classes.
    """
    names, unique = set(cells), len(set(cells)) == len(cells)
    classes = [name for name in cells if name not in table]
    numbers = len(names & {"confidence", "verbalised"}) == 1
    answers = not classes and numbers and ("predicted" in names) != ("index" in names)
    of_classes = len(classes) >= 2 and not names & {"confidence", "verbalised", "predicted", "index", *NO_CLASSES}
    return unique and "id" in names and (answers or of_classes)
