"""Rows from a stream of CSV or JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import csv
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import orjson
from starlette.requests import Request

from service.errors import Refusal, ServiceError
from service.http.error_answers import bad_row
from service.http.json_names import repeated_name
from trueodds.inputs import table
from trueodds.texts import plural, short, without_point

CSV, NDJSON = "text/csv", "application/x-ndjson"
"""Media types of bulk bodies with lines."""
LINES = 20
"""Largest number of lines in one CSV row."""
WHOLE = "expected a whole number, 0 or more"
"""Expected value of an index, for messages."""

R = TypeVar("R")
Row: TypeAlias = tuple[int, R | Refusal]
"""Row with its number."""


def number(name: str, cell: str) -> float:
    """Return the number in a cell. Blanks around it are ignored.

    Raises:
        ValueError: The cell holds something else. The message has its name and value.
    """
    try:
        return table.number(cell)
    except ValueError:
        raise ValueError(f"{name} is {short(cell)}; expected a number{table.number_cure(cell)}") from None


def whole_number(name: str, cell: str) -> int:
    """Return the whole number, 0 or more, in a cell. For errors see `number`."""
    text = without_point(cell.strip())
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ValueError(f"{name} is {short(cell)}; {WHOLE}")
    return int(text)


class LineReader(ABC, Generic[R]):
    """Reader of rows from the lines of a stream. Consecutive calls of `rows` may be in different threads."""

    ends: tuple[bytes, ...] = (b"\n",)
    """Bytes that end a line."""

    @abstractmethod
    def rows(self, block: bytes) -> list[Row[R]]:
        """Return the rows of some complete lines. Blank lines are skipped.

        Raises:
            ServiceError: Nothing can be read from here on, for example after a bad header.
        """

    def rest(self) -> list[Row[R]]:
        """Return the rows that waited for more lines, after the last line. For errors see `rows`."""
        return []


class JsonLines(LineReader[R]):
    """Reader of one JSON value per line with `read(number, value)`. Rows are numbered from 0."""

    def __init__(self, read: Callable[[int, Any], R | Refusal]) -> None:
        self._read, self._next = read, 0

    def rows(self, block: bytes) -> list[Row[R]]:
        return [self._row(line) for line in block.split(b"\n") if line.strip()]

    def _row(self, line: bytes) -> Row[R]:
        number = self._next
        self._next += 1
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return number, bad_row(
                number, None, f"not JSON: {error.msg} at character {error.pos + 1}; NaN and Infinity are not JSON"
            )
        if problem := repeated_name(line, value):
            return number, bad_row(number, None, problem)
        return number, self._read(number, value)


class CsvLines(LineReader[R]):
    """Reader of CSV with a header, with `read(number, cells by column)`.

    Rows are numbered as in a spreadsheet: the header is row 1, blank rows count, and a row with line breaks inside
    quotes is one row.

    Args:
        header: Returns the names of the columns for the cells of a valid header, else None.
        read: Converts a row.
        expectation: Describes a valid header.
    """

    ends = (b"\n", b"\r")

    def __init__(
        self,
        header: Callable[[list[str]], list[str] | None],
        read: Callable[[int, dict[str, str]], R | Refusal],
        expectation: str,
    ) -> None:
        self._names, self._read_cells, self._expectation = header, read, expectation
        self._header: list[str] | None = None
        self._separator = ","
        self._row = 0
        """Number of the last row that was read."""
        self._open: list[bytes] = []
        """Lines from the first one with an open quote on."""

    def rows(self, block: bytes) -> list[Row[R]]:
        return self._read(block.splitlines(keepends=True), last=False)

    def rest(self) -> list[Row[R]]:
        rows = self._read([], last=True)
        if self._header is None:
            raise ServiceError(422, "invalid_header", f"the body is empty; expected {self._expectation}")
        return rows

    def _read(self, lines: list[bytes], *, last: bool) -> list[Row[R]]:
        lines, rows = self._open + lines, list[Row[R]]()
        self._open, at = [], 0
        while at < len(lines):
            taken = 1
            if lines[at].strip() and self._header is None:
                self._header, self._separator = self._read_header(lines[at])
            elif lines[at].strip():
                try:
                    cells, taken = self._cells(lines, at, last)
                except ValueError as error:
                    rows.append((self._row + 1, bad_row(self._row + 1, None, str(error))))
                else:
                    if not taken:
                        self._open = lines[at:]
                        break
                    rows.append((self._row + 1, self._row_of(self._row + 1, cells)))
            self._row, at = self._row + 1, at + taken
        return rows

    def _cells(self, lines: list[bytes], at: int, last: bool) -> tuple[list[str], int]:
        """Return the cells of the row that begins at a line, and its number of lines; 0 if more must arrive first.

        A quote that is not closed within LINES lines makes one bad row. The following lines are rows again.

        Raises:
            ValueError: The row is not UTF-8 or not CSV.
        """
        with contextlib.suppress(csv.Error):  # fast path: nearly every row is a single line
            return next(table.reader([_text(lines[at])], self._separator)), 1
        taken = 0

        def texts() -> Iterator[str]:
            nonlocal taken
            for line in lines[at : at + LINES]:
                taken += 1
                yield _text(line)

        try:
            return next(table.reader(texts(), self._separator)), taken
        except csv.Error as error:
            if not last and taken == len(lines) - at < LINES:
                return [], 0
            raise ValueError(f"not CSV: {error}; close each quote in the cell that opens it") from None

    def _row_of(self, row: int, cells: list[str]) -> R | Refusal:
        assert self._header is not None
        if len(cells) != len(self._header):
            return bad_row(row, None, f"the row has {plural(len(cells), 'cell')}, the header {len(self._header)}")
        return self._read_cells(row, dict(zip(self._header, map(table.cell_of, cells), strict=True)))

    def _read_header(self, line: bytes) -> tuple[list[str], str]:
        """Return the names of the columns and the separator. A valid header is valid with one separator only."""
        if problem := table.encoding_problem(line[:4]):
            raise ServiceError(422, "invalid_header", f"the CSV {problem}")
        try:
            text = _text(line.removeprefix(b"\xef\xbb\xbf")).rstrip("\r\n")
        except ValueError as error:
            raise ServiceError(422, "invalid_header", f"{error}; expected {self._expectation}") from None
        problem = "not CSV: a quote is never closed"
        for mark in table.SEPARATORS:
            with contextlib.suppress(csv.Error):
                if (names := self._names([*map(table.cell_of, next(table.reader([text], mark)))])) is not None:
                    return names, mark
                problem = f"the CSV begins with {short(text)}"
        raise ServiceError(422, "invalid_header", f"{problem}; expected {self._expectation}")


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the row is not UTF-8; in a spreadsheet, save it as 'CSV UTF-8'") from None


async def row_blocks(
    request: Request, reader: LineReader[R], size: int, noun: str, longest: int = 0
) -> AsyncGenerator[list[Row[R]]]:
    """Yield the rows of a body in blocks of `size` bytes. `noun` names the content of a line in messages.

    Args:
        request: The request.
        reader: Reads the lines.
        size: Least size of a block, except the last.
        noun: Content of a line, for messages.
        longest: Longest line, if it may be longer than a block.

    Raises:
        ServiceError: Errors of the reader; 413 for a line that is too long.
    """
    async for block in blocks(request, size, noun, reader.ends, longest):
        yield await asyncio.to_thread(reader.rows, block)
    yield reader.rest()


async def blocks(
    request: Request, size: int, noun: str, ends: Sequence[bytes], longest: int = 0
) -> AsyncIterator[bytes]:
    """Yield complete lines, in blocks of at least `size` bytes except the last. For errors see `row_blocks`.

    `ends` has the bytes that end a line. A CR at the end waits for the next byte, because it may be half of CRLF.
    """
    buffer = bytearray()
    async for chunk in request.stream():
        buffer += chunk
        if len(buffer) < size:
            continue
        end = 1 + max(buffer.rfind(end, 0, len(buffer) - (end == b"\r")) for end in ends)
        if not end and len(buffer) < longest:
            continue
        if not end:
            message = f"a line has more than {max(size, longest):,} bytes, the limit; {noun} must be one short line"
            raise ServiceError(413, "line_too_long", message)
        block = bytes(buffer[:end])
        del buffer[:end]
        yield block
    if buffer:
        yield bytes(buffer)
