"""CSV: one set of rules for every door that reads it (separator, encoding, quotes, blanks, numbers)."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from trueodds.files import written
from trueodds.inputs.errors import InputError, UnreadableError
from trueodds.inputs.names import alike
from trueodds.texts import plural

SEPARATORS = (",", ";", "\t", "|")
SEPARATED = "separated by commas, semicolons, tabs or |"
SAMPLE = 20
"""Lines at the beginning that tell the separator."""
LONGEST = 2**24
"""Characters of a cell; Python's own limit of 131,072, one for the whole process, is less than a long text has."""
_RUN = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
Row = tuple[int, list[str]]
"""The number of a row, as a spreadsheet counts it, the header being row 1; and its cells."""


def escaped(cell: str) -> str:
    """A cell that no spreadsheet runs as a formula: an apostrophe before one that begins with =, +, -, @, tab or CR.

    Numbers stay as they are, such as -1. A cell that begins with apostrophes before such a character gets one more, so
    `unescaped` gives every text back.

    >>> escaped("=1+1"), escaped("-1"), escaped("cat")
    ("'=1+1", '-1', 'cat')
    """
    return f"'{cell}" if _would_run(cell) else cell


def unescaped(cell: str) -> str:
    """The text that `escaped` was given.

    >>> unescaped("'=1+1"), unescaped("'n' Roll")
    ('=1+1', "'n' Roll")
    """
    return cell[1:] if cell[:1] == "'" and _would_run(cell[1:]) else cell


def write(path: Path, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a CSV file that spreadsheets may open: names and texts are `escaped`, a cell that a row lacks is empty."""
    with written(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(map(escaped, names))
        for row in rows:
            cells = (row.get(name, "") for name in names)
            writer.writerow([escaped(cell) if isinstance(cell, str) else cell for cell in cells])


def _would_run(cell: str) -> bool:
    return _RUN.match(cell) is not None and _NUMBER.fullmatch(cell.lstrip("'")) is None


def encoding_problem(start: bytes) -> str:
    """Why bytes that begin so are not UTF-8, to be read after their name: UTF-16 by its mark or its NULs. Else ""."""
    if start.startswith(_UTF_16) or b"\0" in start[:4]:
        return "is UTF-16; save it as UTF-8 (from a spreadsheet as 'CSV UTF-8')"
    return ""


def lines_of(body: bytes) -> Iterable[str]:
    """The lines of a CSV file.

    Raises:
        UnreadableError: what is not UTF-8.
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
    """The rows of lines, which may end with LF, CRLF or CR; blanks before a cell are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    return csv.reader(lines, delimiter=mark, skipinitialspace=True, strict=True)


def cell_of(text: str) -> str:
    """What a cell says: without blanks around it, and without the apostrophe of `escaped`."""
    return unescaped(text.strip())


def separator(head: Sequence[str], wanted: Sequence[str] = ()) -> str:
    """The separator of a table that begins with these lines.

    It finds most of the wanted columns; among equals, it gives every line as many cells as the header; then it gives
    the header the most cells.
    """

    def fit(mark: str) -> tuple[int, bool, int]:
        rows = _begun(head, mark)
        names = {cell_of(cell) for cell in rows[0]} if rows else set()
        widths = {len(row) for row in rows if row}
        return len(names & {*wanted}), len(widths) == 1 and widths != {1}, len(rows[0]) if rows else 0

    return max(SEPARATORS, key=fit)


def _begun(head: Sequence[str], mark: str) -> list[list[str]]:
    """The rows up to one that is not CSV, such as one that goes on after these lines."""
    rows = list[list[str]]()
    with contextlib.suppress(csv.Error):
        rows.extend(reader(head, mark))
    return rows


def rows_of(lines: Iterable[str], wanted: Sequence[str] = ()) -> tuple[list[str], Iterator[Row]]:
    """The names of the columns in the first row, none of an empty file; and the rows below, blank ones left out.

    `wanted`: columns that are expected, which tell the separator.

    Raises:
        UnreadableError: a quote that is not closed; the rows raise it, too.
        InputError: while the rows are read, one of another width than the header's.
    """
    rest = iter(lines)
    head = list(islice(rest, SAMPLE))
    cells = _numbered(reader(chain(head, rest), separator(head, wanted)))
    names = [cell_of(cell) for cell in next(cells, (1, []))[1]]
    return names, _of_width(cells, len(names))


def columns_of(body: bytes, wanted: Sequence[str]) -> tuple[list[str], Iterator[Row], dict[str, str]]:
    """The names of a body's columns and its rows, as `rows_of`; a column that `alike` finds has the wanted name.

    Third are those columns' own names by the wanted ones.

    Raises:
        UnreadableError: as `lines_of` and `rows_of`.
    """
    names, rows = rows_of(lines_of(body), wanted)
    renamed = alike(wanted, names)
    by_name = {other: name for name, other in renamed.items()}
    return [by_name.get(name, name) for name in names], rows, renamed


def _numbered(rows: Iterator[list[str]]) -> Iterator[Row]:
    number = 0
    try:
        for number, cells in enumerate(rows, 1):
            yield number, cells
    except csv.Error as error:
        message = f"row {number + 1:,} is not CSV: {error}; a quote is opened and closed in the same cell"
        raise UnreadableError("invalid_csv", message) from None


def _of_width(rows: Iterator[Row], columns: int) -> Iterator[Row]:
    for number, cells in rows:
        cells = cells or [""]
        if len(cells) == 1 < columns and not cells[0].strip():  # of one column, a blank row is an empty cell
            continue
        if len(cells) != columns:
            problem = f"row {number:,} has {plural(len(cells), 'cell')}, the header {columns:,}"
            raise InputError("wrong_shape", f"{problem}; numbers have a point, and no separator of thousands")
        yield number, cells


def kept_of(rows: Iterator[Row], limit: int) -> tuple[list[Row], int]:
    """Up to `limit` rows, and how many there are."""
    kept = list(islice(rows, limit))
    return kept, len(kept) + sum(1 for _ in rows)


def numbers(cells: Sequence[str]) -> list[float | str | None]:
    """Each cell as a number; None where it is empty, its text where it is no number."""
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
    """The number that a text is; Python's underscores between digits, and digits of other scripts, are no part of CSV.

    Raises:
        ValueError: the text is no number.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def is_number(text: str) -> bool:
    """Whether `number` reads a text."""
    try:
        number(text)
    except ValueError:
        return False
    return True


def comma_cure(cell: str) -> str:
    """The cure of a cell that is no number for its decimal comma alone, to be read after what is allowed; else "".

    >>> comma_cure("0,25"), comma_cure("x")
    ('; a decimal comma is written as a point: 0.25', '')
    """
    if not _DECIMAL_COMMA.fullmatch(cell):
        return ""
    return f"; a decimal comma is written as a point: {cell.strip().replace(',', '.')}"
