"""Answers of another server as rows of requests."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.client.queries import ObserveOptions
from trueodds.errors import ConfigError
from trueodds.sums.inputs import Array, check_no_mask
from trueodds.texts import short

NUMBERS = 200_000
"""In one request: some four megabytes."""
_COLUMNS = {"predicted": "predicted", "tags": "tag", "times": "time", "propensities": "propensity"}
"""Options that have a value for each row, and the service's names for it."""


def observation_rows(
    ids: Iterable[str], numbers: npt.ArrayLike, options: ObserveOptions
) -> tuple[Iterator[dict[str, Any]], int]:
    """Rows of /observe, and how many may go in one request.

    Raises:
        ConfigError: numbers of another shape, masked values, or lists of other lengths.
    """
    only_predicted = options.get("predicted") is not None
    try:
        for name, values in {"ids": ids, "the numbers": numbers, **options}.items():
            check_no_mask(values, name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    array = np.asarray(numbers, np.float64)
    if isinstance(ids, str) or array.ndim != (1 if only_predicted else 2):
        shape = f"the numbers have shape {array.shape}, the ids are {short(ids)}"
        raise ConfigError(f"{shape}; expected ids, and N x C probabilities, or N confidences with `predicted`")
    form = "confidence" if only_predicted else "logits" if options.get("logits") else "probabilities"
    columns: dict[str, Sequence[Any] | Array] = {"id": list(ids), form: array}
    for name, key in _COLUMNS.items():
        if (values := options.get(name)) is not None:
            columns[key] = [_plain(value) for value in values]  # type: ignore[attr-defined]
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{len(column):,} of {name}" for name, column in columns.items())
        raise ConfigError(f"there are {lengths}; expected one of each for every row")
    return _rows(columns, form), max(1, NUMBERS // array[0].size) if len(array) else 1


def _rows(columns: dict[str, Sequence[Any] | Array], form: str) -> Iterator[dict[str, Any]]:
    """Numbers become a list row by row: all at once they would take four times the room of the array."""
    for cells in zip(*columns.values(), strict=True):
        row = {name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None}
        yield row | {form: row[form].tolist()}


def shared_options(options: ObserveOptions) -> dict[str, Any]:
    """What the query says of all rows; names of classes are quoted as CSV has them."""
    query: dict[str, Any] = {"shadow": True} if options.get("shadow") else {}
    if (classes := options.get("classes")) is not None:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(classes)
        query["classes"] = line.getvalue()
    if (positive := options.get("positive")) is not None:
        query["positive"] = positive
    return query


def _plain(value: Any) -> Any:
    """A text, a number or a time as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value
