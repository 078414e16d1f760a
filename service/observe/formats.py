"""The bodies of POST /observe, JSON and lines of JSON or CSV, as observations. No I/O."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from service.bulk.lines import CsvLines, JsonLines, number, whole_number
from service.bulk.refusals import RefusedRowsError, bad_row
from service.errors import Refusal, ServiceError
from service.observe.observation import ALLOWED, Named, Observation, Shared, observation_of
from service.predict.options import check_tag
from trueodds.bundle import ActAlone
from trueodds.errors import ConfigError
from trueodds.inputs.names import alike
from trueodds.texts import as_name, short

SHARED = ("model", "version", "classes", "positive", "tag", "shadow", "act_alone")
"""What a JSON body may say of all its rows, beside `observations`."""
TABLE = tuple(name for name in ALLOWED if name not in ("probabilities", "logits"))
"""Columns of a table that are no classes."""
NO_CLASSES = ("label", "correct")
"""Columns that are of true labels in other tables, and so are not taken for classes."""
COLUMNS = (
    "a header with id, and a column for each class, named as it, or confidence and predicted (or index); and maybe"
    " model, version, tag, time and propensity. The true label goes to POST /feedback"
)


_NUMBERS: dict[str, Callable[[str, str], float]] = {
    "confidence": number,
    "propensity": number,
    "index": whole_number,
}
"""Columns of numbers, and how their cells are read."""


def shared_of(
    model: str | None,
    version: str | None,
    classes: str | None,
    positive: str | None,
    tag: str | None,
    shadow: bool,
    act_alone: str | None = None,
) -> Shared:
    """What a query says of all rows; names of classes have commas between them, and quotes as in CSV.

    Raises:
        ServiceError: 422 for names that are none, or no tag.
    """
    names = None
    if classes is not None:
        try:
            cells = next(csv.reader([classes], skipinitialspace=True), [])
        except csv.Error:  # a line break outside quotes
            raise ServiceError(
                422,
                "invalid_parameter",
                f"classes is {short(classes)}, which is not one line of CSV; send names with commas between them",
            ) from None
        names = check_classes([name.strip() for name in cells])
    promise = None if act_alone is None else promise_of(act_alone)
    now = time.time_ns() // 1_000_000
    return Shared(now, model, version, names, check_tag(tag, "tag"), shadow, positive, promise)


def promise_of(given: Any) -> ActAlone:
    """A promise to act alone: a text such as threshold=.93,risk=.05,confidence=.95, or an object of these and `tags`.

    Raises:
        ServiceError: 422 for anything else.
    """
    try:
        return ActAlone.of_text(given) if isinstance(given, str) else ActAlone.of_tree(given, "act_alone")
    except ConfigError as error:
        raise ServiceError(422, "invalid_parameter", str(error)) from None


def check_classes(classes: Any) -> tuple[str, ...]:
    """Names of classes, at least two, each once.

    Raises:
        ServiceError: 422 for anything else.
    """
    names = tuple(map(as_name, classes)) if isinstance(classes, list | tuple) else ()
    sound = all(isinstance(name, str) and name and name.isprintable() and name == name.strip() for name in names)
    if not sound or len(names) < 2 or len(set(names)) < len(names):
        expected = "expected two names or more, each once and without blanks at its ends, in the order of the numbers"
        message = f"classes is {short(classes)}; {expected}"
        raise ServiceError(422, "invalid_parameter", message)
    return names


def parse(tree: Any, shared: Shared) -> tuple[Shared, list[Observation]]:
    """Rows of a JSON body: an observation, or `{"observations": [...]}` with what is said of all beside it.

    Raises:
        ServiceError: a body of another shape.
        RefusedRowsError: rows of another shape.
    """
    if not isinstance(tree, dict):
        raise _shape_error(f"the body is {short(tree)}")
    rows = [tree]
    if "observations" in tree:
        if extra := tree.keys() - {"observations", *SHARED}:
            raise _shape_error(f"unknown key {short(min(extra))} beside observations")
        if not isinstance(tree["observations"], list) or not tree["observations"]:
            raise _shape_error("observations must be a list of at least one row")
        rows, shared = tree["observations"], _shared(tree, shared)
    read = [observation_of(number, row, shared) for number, row in enumerate(rows)]
    if refusals := [row for row in read if isinstance(row, Refusal)]:
        raise RefusedRowsError(refusals, len(rows))
    return shared, [row for row in read if isinstance(row, Observation)]


def _shared(tree: dict[str, Any], shared: Shared) -> Shared:
    beside = {key: tree[key] for key in SHARED if tree.get(key) is not None}
    for key in beside:
        if getattr(shared, key):
            message = f"{key} stands beside observations and in the query; give it once"
            raise ServiceError(422, "invalid_parameter", message)
    if "classes" in beside:
        beside["classes"] = check_classes(beside["classes"])
    if not isinstance(beside.get("shadow", False), bool):
        raise _shape_error(f"shadow is {short(beside['shadow'])}; allowed are true and false")
    if "act_alone" in beside:
        beside["act_alone"] = promise_of(beside["act_alone"])
    if "positive" in beside:
        beside["positive"] = as_name(beside["positive"])
        if not isinstance(beside["positive"], str):
            raise _shape_error(f"positive is {short(beside['positive'])}; allowed is the name of one of two classes")
    return replace(shared, **beside)


def _shape_error(problem: str) -> ServiceError:
    example = '{"observations": [{"id": ..., "probabilities": [...]}, ...], "model": ..., "version": ...}'
    return ServiceError(422, "invalid_body", f"{problem}; expected an observation, or {example}")


def json_lines(shared: Shared) -> JsonLines[Observation]:
    """Observations, one JSON object a line."""
    return JsonLines(lambda number, value: observation_of(number, value, shared))


def csv_lines(shared: Shared, form: str) -> CsvLines[Observation]:
    """Observations in CSV with a column for each class, which hold what `form` says, or confidence and predicted."""

    def read(row: int, cells: dict[str, str]) -> Observation | Refusal:
        value: dict[str, Any] = {name: cells[name] for name in TABLE if cells.get(name)}
        names = tuple(name for name in cells if name not in TABLE)
        try:
            if names:
                value[form] = Named(names, [number(name, cells[name]) for name in names])
            for name, read_cell in _NUMBERS.items():
                if name in value:
                    value[name] = read_cell(name, value[name])
        except ValueError as error:
            return bad_row(row, cells["id"], str(error))
        return observation_of(row, value, shared)

    return CsvLines(header_of, read, COLUMNS)


def header_of(cells: list[str]) -> list[str] | None:
    """The names of a table's columns; None where they are not those of observations.

    A key may be written in another way (ID, Predicted), as `names.alike` says. A column that can be a class is one.
    """
    keys = {written: key for key, written in alike(TABLE, cells).items()}
    as_keys = [keys.get(cell, cell) for cell in cells]
    names = (
        as_keys if set(as_keys) <= set(TABLE) else [keys[cell] if keys.get(cell) == "id" else cell for cell in cells]
    )
    return names if is_header(names) else None


def is_header(cells: list[str]) -> bool:
    """Whether names are those of a table of observations."""
    names, unique = set(cells), len(set(cells)) == len(cells)
    classes = [name for name in cells if name not in TABLE]
    answers = not classes and "confidence" in names and ("predicted" in names) != ("index" in names)
    of_classes = len(classes) >= 2 and not names & {"confidence", "predicted", "index", *NO_CLASSES}
    return unique and "id" in names and (answers or of_classes)
