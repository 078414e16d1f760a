"""Observations in a Parquet file (extra `table`: pyarrow).

A separate process reads the file, so that a damaged file can crash only that process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from service.bulk.lines import Row
from service.errors import ServiceError
from service.http.error_answers import bad_row
from service.ids import MAX_ID
from service.observe.observation import CallDefaults, Form, NamedNumbers, Observation, RowError, observation_of
from service.observe.observation_formats import COLUMNS, SET, TABLE, is_header, set_of_cell
from service.predict.decoding import ByteBudget
from trueodds.processes.confined import Readers
from trueodds.processes.pieces import ConfinedError, Piece
from trueodds.texts import quotes

PARQUET = "application/vnd.apache.parquet"
ROWS = 2000
"""Number of rows that are read and stored at once."""
MOST_VALUES = 64_000_000
"""Largest number of values in all columns. A small file may claim to have billions."""
MOST_BYTES = 1024**3
"""Largest uncompressed size of all columns, in bytes."""
LISTS = ("probabilities", "logits")
"""Columns of lists."""
FILES = 2
"""Number of files that are read at once. Others wait."""
MOST_HELD = 64 * 1024**2
"""Largest total size, in bytes, of the files that wait or are read. A single file may be larger."""
SECONDS = 30.0
"""Time limit of reading one file, without the time for storing its rows."""
MEMORY = 512 * 1024**2
"""Memory limit of reading one file, in bytes, including the file itself."""
STATUSES = {
    "unreadable": (400, "invalid_parquet"),
    "failed": (400, "invalid_parquet"),
    "header": (422, "invalid_header"),
    "too_large": (413, "too_many_values"),
    "start": (503, "no_reader"),
    "missing": (503, "no_reader"),
}
"""Status and code of an answer by the code of a ConfinedError. Others, such as a crash, are 422 invalid_parquet."""


class ParquetFiles:
    """Reader of Parquet files for the application. Its processes start with the first file."""

    def __init__(self) -> None:
        self._readers = Readers("service.observe.parquet_file:read", count=FILES, seconds=SECONDS, memory=MEMORY)
        self._turns, self._held = asyncio.Semaphore(FILES), ByteBudget("read", MOST_HELD)

    async def row_blocks(
        self, body: bytes, defaults: CallDefaults, form: Form
    ) -> AsyncGenerator[list[Row[Observation]]]:
        """Yield the observations of a file, block by block.

        The file has lists of numbers in a column `probabilities` or `logits`, or a column of `form` numbers per class,
        or confidence and predicted.

        Raises:
            ServiceError: Not a Parquet file, other columns, a limit is exceeded, pyarrow is missing, or too many files
                wait.
        """
        if find_spec("pyarrow") is None:
            message = (
                "this service cannot read Parquet, because pyarrow is missing (pip install 'trueodds[serve,table]')"
            )
            raise ServiceError(415, "unsupported_media_type", f"{message}. Send NDJSON")
        with self._held.hold(len(body)):
            async with self._turns, aclosing(self._read(body, defaults, form)) as blocks:
                async for block in blocks:
                    yield block

    async def _read(self, body: bytes, defaults: CallDefaults, form: Form) -> AsyncGenerator[list[Row[Observation]]]:
        limits = {"rows": ROWS, "most_values": MOST_VALUES, "most_bytes": MOST_BYTES}
        pieces = self._readers.read(body, cells=TABLE, lists=LISTS, sets=SET, **limits)
        blocks, coming = _blocks(pieces, defaults, form), asyncio.Future[Any]()
        coming.set_result(None)
        try:
            while True:
                coming = asyncio.ensure_future(asyncio.to_thread(next, blocks, None))
                if (block := await asyncio.shield(coming)) is None:
                    break
                yield block
        finally:
            await asyncio.wait([coming])  # the thread of a cancelled call still uses the file
            await asyncio.to_thread(pieces.close)

    def close(self) -> None:
        """End the processes."""
        self._readers.close()


def _blocks(pieces: Iterator[Piece], defaults: CallDefaults, form: Form) -> Iterator[list[Row[Observation]]]:
    number = 0
    try:
        for piece in pieces:
            if "columns" in piece.head:
                _check_columns(piece.head["columns"], has_class_set=piece.head["set_is_number"])
                continue
            rows = enumerate(_values(piece, form), number)
            yield [_row(number, value, defaults) for number, value in rows]
            number += piece.head["rows"]
    except ConfinedError as error:
        status, code = STATUSES.get(error.code, (422, "invalid_parquet"))
        message = error.message
        if code == "invalid_parquet":
            cure = "Send it in several files" if error.code in ("memory", "time", "size") else "Write the file again"
            problem = f"the body is not a readable Parquet file: {message.rstrip('.')}"
            message = f"{problem}. {cure}, or send NDJSON"
        raise ServiceError(status, code, message, retry_after=1 if status == 503 else None) from None


def _check_columns(names: list[str], *, has_class_set: bool) -> None:
    table = tuple(name for name in TABLE if name != SET) if has_class_set else TABLE
    lists, others = [name for name in names if name in LISTS], [name for name in names if name not in LISTS]
    with_lists = len(lists) == 1 and len(set(others)) == len(others) and {"id"} <= set(others) <= set(table)
    if not with_lists and (lists or not is_header(others, table)):
        message = f"the Parquet file has the columns {quotes(names)}; expected {COLUMNS}"
        raise ServiceError(422, "invalid_header", f"{message}. Put lists of numbers in probabilities or logits")


def _row(number: int, value: dict[str, Any], defaults: CallDefaults) -> Row[Observation]:
    id_ = value.get("id")
    known_id = id_[:MAX_ID] if isinstance(id_, str) else None
    for name, cell in value.items():
        if type(cell) is dict:  # cells are never dicts; this is a problem that the reader reports
            return number, bad_row(number, known_id, f"{name} {cell['problem']}")
    if isinstance(value.get(SET), str):
        try:
            value[SET] = set_of_cell(value[SET])
        except RowError as error:
            return number, bad_row(number, known_id, str(error))
    return number, observation_of(number, value, defaults)


def _values(piece: Piece, form: Form) -> Iterator[dict[str, Any]]:
    """Yield the rows of a block in the form of a JSON body. Their numbers are rows of an array."""
    head, arrays = piece.head, iter(piece.arrays)
    columns: dict[str, Any] = dict(head["cells"])
    for name, texts in head["texts"].items():
        columns[name] = [None if k < 0 else texts[k] for k in next(arrays).tolist()]
    if head["numbers"]:
        names = tuple(head["numbers"])
        columns[form] = [NamedNumbers(names, numbers_C) for numbers_C in next(arrays)]
    if head["lists"]:
        columns[head["lists"]] = _lists(next(arrays), next(arrays))
    if head["members"] is not None:
        columns[SET] = _sets(head["members"], next(arrays), next(arrays))
    for cells in zip(*columns.values(), strict=True):
        yield {name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None}


def _sets(texts: list[Any], at: npt.NDArray[np.int32], lengths_N: npt.NDArray[np.int64]) -> list[Any]:
    """Return the classes of each set, None without a set. A class that is no text is a problem of its row."""
    members = [None if k < 0 else texts[k] for k in at.tolist()]
    ends = np.cumsum(lengths_N.clip(0)).tolist()
    lengths = lengths_N.tolist()
    sets = [None if n < 0 else members[end - n : end] for n, end in zip(lengths, ends, strict=True)]
    return [next((one for one in found or () if type(one) is dict), found) for found in sets]


def _lists(numbers: npt.NDArray[np.float64], lengths_N: npt.NDArray[np.int64]) -> list[Any]:
    """Split concatenated lists of numbers. If all have the same length, they are rows of one array."""
    if len(lengths_N) and (lengths_N == lengths_N[0]).all() and lengths_N[0] >= 0:
        return list(numbers.reshape(len(lengths_N), lengths_N[0]))
    ends_N = np.cumsum(lengths_N.clip(0))
    return [
        None if length < 0 else numbers[end - length : end]
        for length, end in zip(lengths_N.tolist(), ends_N.tolist(), strict=True)
    ]
