"""Labelled vectors in a table, CSV with a header or Parquet: one column per feature, and one with the labels."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import nearest
from trueodds.files import FileError
from trueodds.inputs import columns
from trueodds.inputs.table import is_number
from trueodds.texts import column_quotes

MANY = 20
"""Number of rows from which labels are refused if they are numbers and more than half of them are distinct."""


def read(
    path: Path, label: str, *, apart: tuple[str, ...] = (), setting: str = "--label"
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], npt.NDArray[Any]]:
    """Read the names of the features, their values (rows, features; NaN for an empty cell), and the labels as text.

    `apart` are further columns that are no features. `setting` names the option for the column `label`, for messages.

    Raises:
        FileError: A column does not exist, rows have no label, the column of labels holds a quantity, a value is
            infinite, or `columns` does not accept the file.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    header = columns.names(path)
    if label not in header:
        cure = f"name the column of the labels: {setting}.{nearest(label, header)}"
        raise FileError(f"{path} has no column {label!r}; it has {column_quotes(header)}; {cure}")
    features = tuple(name for name in header if name not in (label, *apart))
    if not features:
        raise FileError(f"{path} has no column but {label!r}; expected one for each feature of the model")
    try:
        table = columns.read(path, features, [label])
    except columns.NumberError as error:
        cure = (
            "" if error.has_cure else "; make numbers of the column, such as 0 and 1 for each category, or leave it out"
        )
        raise FileError(f"{error}{cure}") from None
    labels = table.texts[label].as_classes()
    if not labels.is_known_N.all():
        row = int(labels.is_known_N.argmin()) + 2
        raise FileError(f"{path}, row {row} has no label; take out rows without one")
    check_classes(path, label, labels.values, len(labels), setting)
    for name in features:
        if (infinite_N := np.isinf(table.numbers[name])).any():
            where = f"{path}, row {int(infinite_N.argmax()) + 2}, column {name!r}"
            raise FileError(f"{where} is infinite; allowed are finite numbers; empty the cell if its value is missing")
    return features, np.stack([table.numbers[name] for name in features], axis=1), np.array(labels.as_list(), str)


def check_classes(path: Path, label: str, different: Collection[str], rows: int, setting: str = "--label") -> None:
    """Check that a column of labels holds classes; `different` are its distinct cells.

    Raises:
        FileError: The column holds a quantity.
    """
    values = [value for value in different if value]
    if rows >= MANY and len(values) > rows / 2 and all(map(is_number, values)):
        problem = f"{path}: the column {label!r} holds {len(values):,} different numbers in {rows:,} rows"
        cure = f"a quantity, rather than classes. Name the column of the classes: {setting}, or make classes of it"
        raise FileError(f"{problem}: {cure}; it has {column_quotes(columns.names(path))}")
