"""Labelled rows in a table: CSV with a header, or Parquet; a column for each feature, and one of the labels."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import MissingExtraError, nearest
from trueodds.importing.errors import LabelledRowsError
from trueodds.texts import listed


def read(
    path: Path, label: str, *, setting: str = "--label"
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], npt.NDArray[Any]]:
    """Names of the features, their values (rows, features), NaN for an empty cell, and the labels as text.

    `setting` is what names the column `label`, for messages.

    Raises:
        LabelledRowsError: no such column, cells that are no numbers, rows without a label.
        MissingExtraError: a Parquet file without pyarrow.
    """
    header, columns = _csv(path) if path.suffix == ".csv" else _parquet(path)
    if label not in columns:
        cure = f"name the column of the labels: {setting}.{nearest(label, header)}"
        raise LabelledRowsError(f"{path} has no column {label!r}; it has {listed(header)}; {cure}")
    if "" in header:
        cure = "name it, or leave it out (as pandas does by to_csv(path, index=False))"
        raise LabelledRowsError(f"{path}: column {header.index('') + 1} of the header has no name; {cure}")
    if len(columns) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise LabelledRowsError(f"{path} has the column {twice!r} twice; give each a name of its own")
    features = tuple(name for name in header if name != label)
    if not features:
        raise LabelledRowsError(f"{path} has no column but {label!r}; expected one for each feature of the model")
    values = [_floats(path, name, columns[name]) for name in features]
    return features, np.stack(values, axis=1), _labels(path, columns[label])


def _csv(path: Path) -> tuple[list[str], dict[str, npt.NDArray[Any]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        table = [row for row in lines if row]
    if ragged := next((k for k, row in enumerate(table, 2) if len(row) != len(header)), 0):
        raise LabelledRowsError(f"{path}, row {ragged}: {len(table[ragged - 2])} cells; the header has {len(header)}")
    return header, {name: np.array([row[k] for row in table]) for k, name in enumerate(header)}


def _parquet(path: Path) -> tuple[list[str], dict[str, npt.NDArray[Any]]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(f"reading {path}", "pyarrow", "table") from None
    try:
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise LabelledRowsError(f"{path} is no Parquet file ({error})") from None
    return table.column_names, {name: table[name].to_numpy() for name in table.column_names}


def _floats(path: Path, name: str, column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The numbers of a column; NaN for an empty cell."""
    if column.dtype.kind in "U":
        column = np.where(np.char.strip(column) == "", "nan", column)
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        bad = next(k for k, cell in enumerate(column.tolist()) if not _is_number(cell))
        problem = f"{path}, row {bad + 2}, column {name!r} holds {str(column[bad])!r}"
        raise LabelledRowsError(f"{problem}; allowed are numbers, and nothing for a missing one") from None


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _labels(path: Path, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    empty = [k for k, cell in enumerate(column.tolist()) if cell is None or cell != cell or not str(cell).strip()]
    if empty:
        raise LabelledRowsError(f"{path}, row {empty[0] + 2} has no label; take out rows without one")
    if column.dtype.kind == "f":
        column = column.astype(np.int64) if (column == np.floor(column)).all() else column
    return np.array([str(cell).strip() for cell in column.tolist()])
