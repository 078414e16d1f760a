"""Rows of a Parquet file, block by block, for the process of a confined reader. It imports only little.

The file controls what the C++ parser does, so each limit is checked before memory is allocated. Values and bytes are
checked by the file's metadata; if these lie, the process's memory limit ends it. Lengths of texts are checked before
the texts become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import ArrowException, compute, parquet, types

from trueodds.processes.pieces import ConfinedError, Piece
from trueodds.texts import short

BLOCK_VALUES = 1_000_000
"""Numbers per block. Wide rows come in smaller blocks."""
DICTIONARY_BYTES = 4 * 1024**2
"""Largest column chunk that is read as a dictionary. A chunk's dictionary is built again for every block."""
CELL_BYTES = 4096
"""Longest text of a cell in bytes."""

_TEXTS = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)


class TextColumn(NamedTuple):
    """Column of texts: the distinct ones, and the position of each row's text among them, -1 for none."""

    values: list[str | dict[str, str]]
    """Distinct texts. `{"problem": ...}` stands for an invalid one."""
    at_N: npt.NDArray[np.int32]


def read(
    body: bytes,
    *,
    cells: Sequence[str],
    lists: Sequence[str],
    sets: str,
    rows: int,
    most_values: int,
    most_bytes: int,
) -> Iterator[Piece]:
    """Yield the names of the columns, then blocks of at most `rows` rows.

    The head of a block is `{"rows", "cells": {name: JSON values}, "texts": {name: TextColumn.values}, "numbers": names,
    "lists": name or none, "members": TextColumn.values or none}`. Its arrays are the `TextColumn.at_N` of each text
    column, then the numbers. These are either all other columns as N x C, or the concatenated lists and the length of
    each list, -1 for none. Then come the members of all sets as `TextColumn.at_N`, and the length of each set.

    Args:
        body: The file.
        cells: Columns that are not numbers of classes.
        lists: Columns of lists of numbers.
        sets: Column of sets: lists of texts, or a text. If it holds numbers, it is the column of a class.
        rows: Largest number of rows in a block.
        most_values: Largest number of values in all columns.
        most_bytes: Largest uncompressed size of all columns, in bytes.

    Raises:
        ConfinedError: `unreadable` if it is not such a file, `too_large` above a limit, `header` for a column's type.
    """
    try:
        metadata = parquet.read_metadata(pyarrow.BufferReader(body))
        sizes = _sizes(metadata)
        _check_size(metadata, sizes, most_values, most_bytes)
        small = [name for name in cells if name != "id" and 0 < sizes.get(name, 0) <= DICTIONARY_BYTES]
        file = parquet.ParquetFile(pyarrow.BufferReader(body), read_dictionary=small, pre_buffer=False)
        schema = file.schema_arrow
        is_number = any(field.name == sets and _is_number(field.type) for field in schema)
        if is_number:
            cells = [name for name in cells if name != sets]
        yield Piece({"columns": schema.names, "set_is_number": is_number}, [])
        _check_types(schema, cells, lists, sets)
        width = sum(chunk.num_values for chunk in _chunks(metadata)) // max(1, metadata.num_rows)
        for batch in file.iter_batches(max(1, min(rows, BLOCK_VALUES // max(1, width))), use_threads=False):
            yield _block(batch, cells, lists, sets)
    except (ArrowException, OSError) as error:
        if isinstance(error, MemoryError):
            raise
        raise ConfinedError("unreadable", str(error)[:1000]) from None


def _chunks(metadata: parquet.FileMetaData) -> Iterator[parquet.ColumnChunkMetaData]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        yield from (group.column(column) for column in range(group.num_columns))


def _sizes(metadata: parquet.FileMetaData) -> dict[str, int]:
    """Return the uncompressed size of each column's largest chunk, in bytes."""
    sizes: dict[str, int] = {}
    for chunk in _chunks(metadata):
        sizes[chunk.path_in_schema] = max(sizes.get(chunk.path_in_schema, 0), chunk.total_uncompressed_size)
    return sizes


def _check_size(metadata: parquet.FileMetaData, sizes: dict[str, int], most_values: int, most_bytes: int) -> None:
    values = sum(chunk.num_values for chunk in _chunks(metadata))
    unpacked = sum(chunk.total_uncompressed_size for chunk in _chunks(metadata))
    for what, count, most in (("values", values, most_values), ("uncompressed bytes", unpacked, most_bytes)):
        if count > most:
            message = f"the Parquet file has {count:,} {what}; the limit is {most:,}. Send it in several files"
            raise ConfinedError("too_large", message)


def _check_types(schema: pyarrow.Schema, cells: Sequence[str], lists: Sequence[str], sets: str) -> None:
    for field in schema:
        if field.name == sets and sets in cells:
            allowed = "lists of texts, or lists in JSON as text"
            kind = field.type.value_type if _is_list(field.type) else field.type
            sound = _is_text(kind) or types.is_null(kind)  # lists of nulls: all sets are empty
        elif field.name in cells:
            allowed, sound = "a text, a number or a time", _is_cell(field.type)
        elif field.name in lists:
            allowed, sound = "lists of numbers", _is_list(field.type) and _is_number(field.type.value_type)
        else:
            allowed, sound = "numbers, because it is the column of a class", _is_number(field.type)
        if not sound:
            message = f"the column {short(field.name)} holds {short(str(field.type))}; expected {allowed}"
            raise ConfinedError("header", message)


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind))


def _is_list(kind: pyarrow.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pyarrow.DataType) -> bool:
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return any(is_kind(kind) for is_kind in _TEXTS)


def _is_cell(kind: pyarrow.DataType) -> bool:
    plain = (types.is_boolean, types.is_null, types.is_timestamp, types.is_date)
    return _is_text(kind) or _is_number(kind) or any(is_kind(kind) for is_kind in plain)


def _block(batch: pyarrow.RecordBatch, cells: Sequence[str], lists: Sequence[str], sets: str) -> Piece:
    head: dict[str, Any] = {"rows": batch.num_rows, "cells": {}, "texts": {}, "numbers": [], "lists": None}
    head["members"] = None
    arrays, numbers, of_lists = list[npt.NDArray[Any]](), list[npt.NDArray[np.float64]](), list[npt.NDArray[Any]]()
    of_sets = list[npt.NDArray[Any]]()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in lists:
            head["lists"], of_lists = name, [_numbers(column.flatten()), _lengths(column)]
        elif name == sets and _is_list(column.type):
            head["members"], at_M = _texts(column.flatten())
            of_sets = [at_M, _lengths(column)]
        elif name not in cells:
            head["numbers"].append(name)
            numbers.append(_numbers(column))
        elif _is_text(column.type):
            head["texts"][name], at_N = _texts(column)
            arrays.append(at_N)
        else:
            head["cells"][name] = _cells(column)
    if numbers:
        arrays.append(np.stack(numbers, axis=1))
    return Piece(head, arrays + of_lists + of_sets)


def _lengths(column: pyarrow.Array) -> npt.NDArray[np.int64]:
    """Return the length of each list, -1 for none."""
    lengths: npt.NDArray[np.int64] = column.value_lengths().fill_null(-1).to_numpy().astype(np.int64)
    return lengths


def _numbers(column: pyarrow.Array) -> npt.NDArray[np.float64]:
    """Return a column of numbers, with NaN for missing ones."""
    numbers: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def _cells(column: pyarrow.Array) -> list[Any]:
    """Return numbers, booleans, None, and times in Unix seconds with whole milliseconds."""
    kind = column.type
    if types.is_floating(kind):
        column = column.cast(pyarrow.float64())
    elif types.is_date(kind):  # days in 32 bits, milliseconds in 64
        days = types.is_date32(kind)
        counts = column.cast(pyarrow.int32()).cast(pyarrow.int64()) if days else column.cast(pyarrow.int64())
        return [None if n is None else n * 86_400 if days else n / 1000 for n in counts.to_pylist()]
    elif types.is_timestamp(kind):
        parts = {"s": 0, "ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit]
        times = column.cast(pyarrow.int64()).to_pylist()
        return [n // parts / 1000 if parts and n is not None else n for n in times]
    cells: list[Any] = column.to_pylist()
    return cells


def _texts(column: pyarrow.Array) -> TextColumn:
    """Return the texts of a column. A text that is too long or not UTF-8 becomes a problem of its rows."""
    if types.is_null(column.type):
        return TextColumn([], np.full(len(column), -1, np.int32))
    if types.is_dictionary(column.type):
        used, at_N = np.unique(column.indices.fill_null(-1).to_numpy().astype(np.int32), return_inverse=True)
        if len(used) and used[0] == -1:
            used, at_N = used[1:], at_N - 1
        column = column.dictionary.take(pyarrow.array(used))
    else:
        at_N = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.arange(len(column)), -1)
    lengths = compute.binary_length(column)
    long = compute.greater(lengths, CELL_BYTES).fill_null(False)
    kept = compute.if_else(long, None, column.cast(pyarrow.large_binary(), safe=False))
    values = [_text(data, length) for data, length in zip(kept.to_pylist(), lengths.to_pylist(), strict=True)]
    return TextColumn(values, at_N.astype(np.int32))


def _text(data: bytes | None, length: int | None) -> Any:
    """Return the text; None for a null; a problem if it is too long or not UTF-8."""
    if data is None:
        if length is None:
            return None
        return {"problem": f"has {length:,} bytes; the limit is {CELL_BYTES:,}"}
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return {"problem": f"is not UTF-8: byte {error.start} is {data[error.start]:#04x}; write it as UTF-8"}
