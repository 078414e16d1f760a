"""Observations in a Parquet file (extra `table`: pyarrow)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from service.bulk.lines import Row
from service.errors import ServiceError
from service.observe.formats import COLUMNS, TABLE, header_of
from service.observe.observation import Form, Named, Observation, Shared, observation_of
from trueodds.texts import listed, short

if TYPE_CHECKING:
    import pyarrow

PARQUET = "application/vnd.apache.parquet"
ROWS = 2000
"""Rows that are read and stored at once."""
MOST_VALUES = 64_000_000
"""Values in all columns: a small file may say that it holds billions."""
LISTS = ("probabilities", "logits")
"""Columns of lists."""


async def row_blocks(body: bytes, shared: Shared, form: Form) -> AsyncIterator[list[Row[Observation]]]:
    """The observations of a file, block by block, read in a thread: lists of numbers in a column `probabilities` or
    `logits`, a column for each class, which hold what `form` says, or confidence and predicted.

    Raises:
        ServiceError: no Parquet file, other columns, too many values, or no pyarrow here.
    """
    blocks = _blocks(body, shared, form)
    while (block := await asyncio.to_thread(next, blocks, None)) is not None:
        yield block


def _blocks(body: bytes, shared: Shared, form: Form) -> Iterator[list[Row[Observation]]]:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        message = "this service reads no Parquet: it has no pyarrow (pip install 'trueodds[serve,table]'). Send NDJSON"
        raise ServiceError(415, "unsupported_media_type", message) from None
    number = 0
    try:
        file = parquet.ParquetFile(io.BytesIO(body))
        _check_size(file.metadata)
        _check_columns(file.schema_arrow.names)
        for batch in file.iter_batches(ROWS):
            rows = enumerate(_values(batch, form), number)
            yield [(row, observation_of(row, value, shared)) for row, value in rows]
            number += batch.num_rows
    except (ArrowException, OSError) as error:
        raise ServiceError(400, "invalid_parquet", f"the body is no Parquet file that can be read: {error}") from None


def _check_size(metadata: Any) -> None:
    groups, columns = range(metadata.num_row_groups), range(metadata.num_columns)
    values = sum(metadata.row_group(group).column(column).num_values for group in groups for column in columns)
    if values > MOST_VALUES:
        message = f"the Parquet file has {values:,} values; the limit is {MOST_VALUES:,}. Send it in several files"
        raise ServiceError(413, "too_many_values", message)


def _check_columns(names: list[str]) -> None:
    lists, others = [name for name in names if name in LISTS], [name for name in names if name not in LISTS]
    with_lists = len(lists) == 1 and len(set(others)) == len(others) and {"id"} <= set(others) <= set(TABLE)
    if not with_lists and (lists or header_of(others) is None):
        message = f"the Parquet file has the columns {listed(names)}; expected {COLUMNS}"
        raise ServiceError(422, "invalid_header", f"{message}. Lists of numbers are in probabilities or logits")


def _values(batch: pyarrow.RecordBatch, form: Form) -> Iterator[dict[str, Any]]:
    """The rows of a batch as a JSON body has them, their numbers as rows of an array."""
    names = tuple(name for name in batch.schema.names if name not in (*TABLE, *LISTS))
    columns = {name: _cells(batch.column(name)) for name in batch.schema.names if name in TABLE}
    columns |= {name: _lists(batch.column(name)) for name in batch.schema.names if name in LISTS}
    if names:
        numbers_NC = np.stack([_numbers(batch.column(name), name) for name in names], axis=1)
        columns[form] = [Named(names, numbers_C) for numbers_C in numbers_NC]
    for cells in zip(*columns.values(), strict=True):
        yield {name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None}


def _cells(column: pyarrow.Array) -> list[Any]:
    """The cells of a column that is no class; a timestamp in seconds."""
    import pyarrow

    if not pyarrow.types.is_timestamp(column.type):
        cells: list[Any] = column.to_pylist()
        return cells
    milliseconds = column.cast(pyarrow.timestamp("ms", column.type.tz), safe=False).cast(pyarrow.int64())
    return [None if ms is None else ms / 1000 for ms in milliseconds.to_pylist()]


def _lists(column: pyarrow.Array) -> list[Any]:
    """Lists of numbers: as rows of one array where all are of one length, else each by itself."""
    import pyarrow

    kind = column.type
    of_numbers = isinstance(kind, pyarrow.ListType | pyarrow.LargeListType | pyarrow.FixedSizeListType) and (
        pyarrow.types.is_floating(kind.value_type) or pyarrow.types.is_integer(kind.value_type)
    )
    lengths = set(column.value_lengths().to_pylist()) if of_numbers else set()
    if len(lengths) != 1 or None in lengths:
        cells: list[Any] = column.to_pylist()
        return cells
    (length,) = lengths
    return list(_numbers(column.flatten(), "").reshape(len(column), length))


def _numbers(column: pyarrow.Array, name: str) -> npt.NDArray[np.float64]:
    """A column of numbers, NaN for none.

    Raises:
        ServiceError: it holds something else.
    """
    import pyarrow

    if not (pyarrow.types.is_floating(column.type) or pyarrow.types.is_integer(column.type)):
        message = f"the column {short(name)} is a class's, and holds {column.type}; expected numbers"
        raise ServiceError(422, "invalid_header", message)
    numbers: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers
