"""Converts answers of another server to the rows of /observe."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.client.queries import ObserveOptions
from trueodds.errors import ConfigError, unknown
from trueodds.sums.frames import check_columns, check_has_order, check_index, columns_of
from trueodds.sums.inputs import Array, check_no_mask, without_objects, without_tensors
from trueodds.texts import as_name, as_whole, short

CHAT_FORMS = ("logprobs", "verbalised", "votes")
CHAT_ROWS = 2000
"""Rows of chat models in one request."""
NUMBERS = 200_000
"""Numbers in one request: about four megabytes."""
_COLUMNS = {
    "tags": "tag",
    "times": "time",
    "propensities": "propensity",
    "confidence_sources": "confidence_source",
}
"""Options with one value for each row, and their names in the service."""
CLASS = {
    "label": "expected the name of a class, as a text or a whole number. Pass its position among the classes as index",
    "index": "expected a whole number from 0 on, the position of a class among the model's",
}
"""Ends of messages: the allowed values of a class name and of a class index."""


def with_names_of_columns(numbers: object, options: ObserveOptions) -> ObserveOptions:
    """Return the options with the names of a data frame's columns as `classes`, if the caller gave none.

    The service then matches the columns by name with the classes of the version, in any order.
    """
    names = columns_of(numbers)
    given = any(options.get(key) is not None for key in ("classes", "form", "predicted", "index"))
    if given or not names or not all(isinstance(name, str) for name in names):
        return options
    return {**options, "classes": names}


def observation_rows(
    ids: Iterable[str], numbers: npt.ArrayLike | Sequence[Any], options: ObserveOptions
) -> tuple[Iterator[dict[str, Any]], int]:
    """Return the rows of /observe, and the number of rows that fit into one request.

    Raises:
        ConfigError: An option is unknown, the numbers have another shape, values are masked, lengths differ, or a data
            frame has the classes or the index of another argument in another order.
    """
    known = ObserveOptions.__annotations__
    if wrong := [name for name in options if name not in known]:
        raise unknown("option", wrong[0], known)
    by = [key for key in ("predicted", "index") if options.get(key) is not None]
    if len(by) > 1:
        raise ConfigError(
            "predicted and index are both given; give one of them: the names of the classes or their indices"
        )
    only_predicted = bool(by)
    try:
        for name, values in {"ids": ids, "the numbers": numbers, **options}.items():
            check_no_mask(values, name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    per_row = {name: options.get(name) for name in ("predicted", "index", "sets", *_COLUMNS)}
    check_index(ids=ids, probabilities=numbers, **per_row)
    if (classes := options.get("classes")) is not None:
        check_has_order(classes)
        if isinstance(classes, Sized):  # names that come one by one are read later, once
            check_columns(numbers, (), [*classes])
    if (sent := options.get("form")) is not None:
        return _chat_rows(ids, numbers, sent, options)
    array = _numbers(numbers)
    if isinstance(ids, str) or array.ndim != (1 if only_predicted else 2):
        shape = f"the numbers have shape {array.shape}, the ids are {short(ids)}"
        expected = "expected ids, and N x C probabilities, or N confidences with `predicted` or `index`"
        raise ConfigError(f"{shape}; {expected}")
    form = "confidence" if only_predicted else "logits" if options.get("logits") else "probabilities"
    columns: dict[str, Sequence[Any] | Array] = {"id": _texts(ids), form: array}
    _add_columns(columns, options)
    return _rows(columns, form), max(1, NUMBERS // array[0].size) if len(array) else 1


def _add_columns(columns: dict[str, Sequence[Any] | Array], options: ObserveOptions) -> None:
    """Add the options with one value for each row."""
    for key in ("predicted", "index"):
        values: Any = options.get(key)
        if values is not None:
            columns[key] = _classes(values, key)
    for name, key in _COLUMNS.items():
        if (values := options.get(name)) is not None:
            columns[key] = [plain_time(value) for value in without_tensors(values)]
    if (sets := options.get("sets")) is not None:
        columns["set"] = [[str(as_name(name)) for name in members] for members in sets]
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{len(column):,} of {name}" for name, column in columns.items())
        raise ConfigError(f"there are {lengths}; expected the same number of each")


def _chat_rows(
    ids: Iterable[str], values: Any, form: str, options: ObserveOptions
) -> tuple[Iterator[dict[str, Any]], int]:
    """Return rows of what chat models gave. The service reads the values; entries of `top_logprobs` may be objects."""
    if form not in CHAT_FORMS:
        raise unknown("form", form, CHAT_FORMS)
    if options.get("logits"):
        raise ConfigError(f"logits and form={form} are both given; give one of them")
    if isinstance(ids, str) or isinstance(values, str | Mapping):
        raise ConfigError(
            f"the ids are {short(ids)}, {form} is {short(values)}; expected lists with one entry for each"
        )
    columns: dict[str, Sequence[Any] | Array] = {"id": _texts(ids), form: [_chat_value(value) for value in values]}
    _add_columns(columns, options)
    keys = list(columns)
    rows = (
        {k: x for k, x in zip(keys, cells, strict=True) if x is not None}
        for cells in zip(*columns.values(), strict=True)
    )
    return rows, CHAT_ROWS


def _chat_value(value: Any) -> Any:
    """Convert a value to its JSON form: entries with `token` and `logprob` become objects with these keys."""
    if isinstance(value, Mapping):
        return {key: _plain_number(number) for key, number in value.items()}
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return [{"token": e.token, "logprob": e.logprob} if hasattr(e, "logprob") else _plain_number(e) for e in value]
    return _plain_number(value)


def _plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _rows(columns: dict[str, Sequence[Any] | Array], form: str) -> Iterator[dict[str, Any]]:
    """Yield the rows one by one. Converting all numbers to lists at once would take four times the array's memory."""
    for cells in zip(*columns.values(), strict=True):
        row = {name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None}
        yield row | {form: row[form].tolist()}


def shared_options(options: ObserveOptions) -> dict[str, Any]:
    """Return the query parameters that hold for all rows. Class names are quoted as in CSV.

    Raises:
        ConfigError: A class name is invalid, or has blanks at its ends, which the query would lose.
    """
    query: dict[str, Any] = {name: True for name in ("shadow", "ordered") if options.get(name)}
    if (classes := options.get("classes")) is not None:
        line = io.StringIO()
        names = _classes(classes, "classes")
        if blank := [name for name in names if name != str(name).strip()]:
            raise ConfigError(f"classes holds {short(blank[0])}; remove the blanks at its ends")
        csv.writer(line, lineterminator="").writerow(names)
        query["classes"] = line.getvalue()
    if (positive := options.get("positive")) is not None:
        (query["positive"],) = _classes([positive], "positive")
    if (resolution := options.get("resolution")) is not None:
        query["resolution"] = resolution
    if (source := options.get("confidence_source")) is not None:
        query["confidence_source"] = source
    if (promise := options.get("act_alone")) is not None:
        query["act_alone"] = promise
    query |= {name: value for name in ("set_level", "set_rows") if (value := options.get(name)) is not None}
    return query


def plain_class(value: Any, key: str) -> str | int | None:
    """Convert a class to its JSON form: an int from 0 on for the key `index`, else a name. None if it is no class."""
    if value is np.ma.masked:
        return None
    if not isinstance(value, str | int):
        value = without_tensors(value)
        value = value.item() if getattr(value, "shape", None) == () else value
    if key == "index":
        index = as_whole(value)
        return None if index is None or index < 0 else index
    name = as_name(value)
    return str(name) if isinstance(name, str) else None


def _texts(ids: Iterable[Any]) -> list[str]:
    """Return the ids as a list."""
    texts = list(ids)
    for n, id_ in enumerate(texts):
        if not isinstance(id_, str):
            raise ConfigError(f"row {n} has the id {short(id_)}; expected a text")
    return texts


def _classes(values: Iterable[Any], key: str) -> list[str | int]:
    """Return the predicted classes in their JSON form."""
    classes = list[str | int]()
    for n, value in enumerate(values):
        class_ = plain_class(value, key)
        if class_ is None:
            raise ConfigError(f"row {n} of {key} is {short(value)}; {CLASS['index' if key == 'index' else 'label']}")
        classes.append(class_)
    return classes


def _numbers(numbers: npt.ArrayLike) -> Array:
    """Convert numbers to an array of floats. numpy alone would also convert texts and booleans."""
    try:
        array = without_objects(np.asarray(without_tensors(numbers)))
    except ValueError as error:
        raise ConfigError(f"the numbers are not an array ({error}); expected rows of one length") from None
    if array.dtype.kind not in "iuf" and array.size:
        kind = f"of the type {array.dtype}, such as {short(array.flat[0])}"
        raise ConfigError(f"the numbers are {kind}; expected an array or lists of numbers")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        row, bad = int(np.argwhere(~np.isfinite(array))[0][0]), array[~np.isfinite(array)][0]
        raise ConfigError(f"row {row} of the numbers holds {bad}; every number must be finite")
    return array


def plain_time(value: Any) -> Any:
    """Convert a time, a text or a number to its JSON form; NaN and NaT become None."""
    if value is None or value != value:
        return None
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value
