"""Rules of CSV for all readers: separator, encoding, quotes, blanks, numbers."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any

from trueodds.files import FileError, atomic_write
from trueodds.inputs.errors import InputError, UnreadableError
from trueodds.texts import alike, plural

SEPARATORS = (",", ";", "\t", "|")
SEPARATED = "separated by commas, semicolons, tabs or |"
SAMPLE = 20
"""Number of lines at the beginning that determine the separator."""
LONGEST = 2**24
"""Largest number of characters in a cell. Python's own limit of 131,072 per process is too small for a long text."""
_RUN = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_PERCENTAGE = re.compile(r"\s*([+-]?\d*[.,]?\d+)\s*%\s*")
_SEPARATOR_LINE = re.compile(r'"?sep=.?"?[;,]*')
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
Row = tuple[int, list[str]]
"""A row number, as a spreadsheet counts it with the header as row 1, and the row's cells."""


def escape(cell: str) -> str:
    """Escape a cell that a spreadsheet would run as a formula, with an apostrophe before =, +, -, @, tab or CR.

    Numbers such as -1 are unchanged. A cell that begins with apostrophes before such a character gets one more, so that
    `unescape` restores every text.

    Examples:
        >>> escape("=1+1"), escape("-1"), escape("cat")
        ("'=1+1", '-1', 'cat')
    """
    return f"'{cell}" if _would_run(cell) else cell


def unescape(cell: str) -> str:
    """Restore the text that `escape` was given.

    Examples:
        >>> unescape("'=1+1"), unescape("'n' Roll")
        ('=1+1', "'n' Roll")
    """
    return cell[1:] if cell[:1] == "'" and _would_run(cell[1:]) else cell


def write(path: Path, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a CSV file that spreadsheets may open. Names and texts are `escape`; a missing cell is empty."""
    with atomic_write(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(map(escape, names))
        for row in rows:
            cells = (row.get(name, "") for name in names)
            writer.writerow([escape(cell) if isinstance(cell, str) else cell for cell in cells])


def check_no_labels(path: Path, names: Sequence[str]) -> None:
    """Check that a CSV file which is to be replaced has nothing in some columns, which people fill in.

    Raises:
        FileError: It has, so their work would be lost.
    """
    if not path.is_file():
        return
    try:
        header, rows = rows_of(lines_of(path.read_bytes()), names)
        places = [place for place, name in enumerate(header) if name in names]
        filled = sum(any(cells[place].strip() for place in places) for _, cells in rows)
    except InputError:  # another file than a table
        return
    if filled:
        problem = f"{path} exists, and {plural(filled, 'row')} of it {'has' if filled == 1 else 'have'} a label"
        raise FileError(f"{problem}; give --out another name, or remove the file")


def _would_run(cell: str) -> bool:
    return _RUN.match(cell) is not None and _NUMBER.fullmatch(cell.lstrip("'")) is None


def encoding_problem(start: bytes) -> str:
    """Return the problem of bytes that begin like UTF-16 (its mark or NULs), to be read after their name; else ""."""
    if start.startswith(_UTF_16) or b"\0" in start[:4]:
        return "is UTF-16; save it as UTF-8 (from a spreadsheet as 'CSV UTF-8')"
    return ""


def lines_of(body: bytes) -> Iterable[str]:
    """Decode the lines of a CSV file.

    Raises:
        UnreadableError: The body is not UTF-8.
    """
    if problem := encoding_problem(body[:4]):
        raise UnreadableError("invalid_csv", f"the CSV {problem}")
    try:
        return io.StringIO(body.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        line = len(body[: error.start + 1].splitlines())
        message = f"line {line:,} of the CSV is not UTF-8; from a spreadsheet save it as 'CSV UTF-8'"
        raise UnreadableError("invalid_csv", message) from None


def reader(lines: Iterable[str], mark: str) -> Iterator[list[str]]:
    """Parse the rows of lines, which may end with LF, CRLF or CR. Blanks before a cell are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    return csv.reader(lines, delimiter=mark, skipinitialspace=True, strict=True)


def cell_of(text: str) -> str:
    """Return the content of a cell, without blanks around it and without the apostrophe of `escape`."""
    return unescape(text.strip())


def separator(head: Sequence[str], columns: Sequence[str] = ()) -> str:
    """Return the separator of a table that begins with these lines.

    It is the one that finds most of the wanted columns. Among equals it gives every line as many cells as the header,
    then gives the header the most cells.
    """

    def fit(mark: str) -> tuple[int, bool, int]:
        rows = _begun(head, mark)
        names = {cell_of(cell) for cell in rows[0]} if rows else set()
        widths = {len(row) for row in rows if row}
        return len(names & {*columns}), len(widths) == 1 and widths != {1}, len(rows[0]) if rows else 0

    return max(SEPARATORS, key=fit)


def _begun(head: Sequence[str], mark: str) -> list[list[str]]:
    """Parse the rows up to one that is not CSV, such as a row that continues after these lines."""
    rows = list[list[str]]()
    with contextlib.suppress(csv.Error):
        rows.extend(reader(head, mark))
    return rows


def rows_of(lines: Iterable[str], columns: Sequence[str] = ()) -> tuple[list[str], Iterator[Row]]:
    """Return the names of the columns in the first row (none for an empty file) and the rows below, without blank ones.

    A line such as `sep=;`, which tells Excel the separator, and blank lines above the names are left out. `columns` are
    the expected columns, which determine the separator.

    Raises:
        UnreadableError: A quote is not closed. Reading the rows may raise it too.
        InputError: While the rows are read: one has another width than the header.
    """
    rest = dropwhile(_is_above, lines)
    head = list(islice(rest, SAMPLE))
    cells = _number_rows(reader(chain(head, rest), separator(head, columns)))
    names = [cell_of(cell) for cell in next(cells, (1, []))[1]]
    return names, _of_width(cells, len(names))


def columns_of(body: bytes, columns: Sequence[str]) -> tuple[list[str], Iterator[Row], dict[str, str]]:
    """Return the names of a body's columns and its rows, like `rows_of`.

    A column that `alike` finds gets the wanted name.

    The third value maps the wanted names to those columns' own names.

    Raises:
        UnreadableError: The body is not UTF-8, or a quote is not closed.
    """
    names, rows = rows_of(lines_of(body), columns)
    renamed = alike(columns, names)
    by_name = {other: name for name, other in renamed.items()}
    return [by_name.get(name, name) for name in names], rows, renamed


def _number_rows(rows: Iterator[list[str]]) -> Iterator[Row]:
    number = 0
    try:
        for number, cells in enumerate(rows, 1):
            yield number, cells
    except csv.Error as error:
        message = f"row {number + 1:,} is not CSV: {error}; a quote is opened and closed in the same cell"
        raise UnreadableError("invalid_csv", message) from None


def _is_above(line: str) -> bool:
    return not line.strip() or _SEPARATOR_LINE.fullmatch(line.strip().lower()) is not None


def without_empty_end(rows: Iterator[Row]) -> Iterator[Row]:
    """Leave out rows of empty cells at the end, as spreadsheets write them. A single cell may be a missing value."""
    empty = list[Row]()
    for row in rows:
        empty.append(row)
        if len(row[1]) == 1 or any(map(str.strip, row[1])):
            yield from empty
            empty.clear()


def _of_width(rows: Iterator[Row], columns: int) -> Iterator[Row]:
    for number, cells in rows:
        cells = cells or [""]
        if len(cells) == 1 < columns and not cells[0].strip():  # with a single column, a blank row is an empty cell
            continue
        if len(cells) != columns:
            problem = f"row {number:,} has {plural(len(cells), 'cell')}, the header {columns:,}"
            cure = "numbers have a point, and no separator of thousands"
            if columns == 1:
                cure = "the first row names the columns: remove the lines above these names"
            raise InputError("wrong_shape", f"{problem}; {cure}")
        yield number, cells


def take_rows(rows: Iterator[Row], limit: int) -> tuple[list[Row], int]:
    """Return up to `limit` rows, and their total number."""
    kept = list(islice(rows, limit))
    return kept, len(kept) + sum(1 for _ in rows)


def numbers(cells: Sequence[str]) -> list[float | str | None]:
    """Convert each cell to a number: None if it is empty, its text if it is not a number."""
    text = "".join(cells)
    if text.isascii() and "_" not in text:
        try:
            return list(map(float, cells))
        except ValueError:
            pass
    return [_cell(cell) for cell in cells]


def _cell(cell: str) -> float | str | None:
    if not cell.strip():
        return None
    try:
        return number(cell)
    except ValueError:
        return cell


def number(text: str) -> float:
    """Convert a text to a number. Underscores between digits, and digits of other scripts, are not allowed in CSV.

    Raises:
        ValueError: The text is not a number.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def is_number(text: str) -> bool:
    """Return whether `number` accepts a text."""
    try:
        number(text)
    except ValueError:
        return False
    return True


def number_cure(cell: str) -> str:
    """Return what to do about a cell that is not a number only because of its decimal comma or percent sign; else "".

    The text is to be read after what is allowed.

    Examples:
        >>> number_cure("0,25"), number_cure("x")
        ('; a decimal comma is written as a point: 0.25', '')
        >>> number_cure("25 %")
        '; leave out the percent sign: 25, or 0.25 for a probability'
    """
    if _DECIMAL_COMMA.fullmatch(cell):
        return f"; a decimal comma is written as a point: {cell.strip().replace(',', '.')}"
    if percentage := _PERCENTAGE.fullmatch(cell):
        number = percentage[1].replace(",", ".")
        return f"; leave out the percent sign: {number}, or {(Decimal(number) / 100).normalize():f} for a probability"
    return ""
