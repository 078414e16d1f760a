"""Rows as CSV: as spreadsheets write it in UTF-8, with commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from trueodds.inputs.errors import InputError, UnreadableError
from trueodds.texts import plural

SEPARATORS = (",", ";", "\t")
LONGEST = 2**24
"""Characters of a cell; Python's own limit of 131,072, one for the whole process, is less than a long text has."""
_RUN = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
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


def _would_run(cell: str) -> bool:
    return _RUN.match(cell) is not None and _NUMBER.fullmatch(cell.lstrip("'")) is None


def text_of(body: bytes) -> str:
    """The text of a CSV file.

    Raises:
        UnreadableError: what is not UTF-8.
    """
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        message = f"line {line:,} of the CSV is not UTF-8; from a spreadsheet save it as 'CSV UTF-8'"
        raise UnreadableError("invalid_csv", message) from None


def header(text: str, features: Sequence[str]) -> tuple[list[str], str]:
    """The names of the columns, and what separates them: that which finds most of the features."""
    line = text.partition("\n")[0].rstrip("\r")
    readings = {mark: next(csv.reader([line], delimiter=mark), []) for mark in SEPARATORS}
    names = {mark: [name.strip() for name in cells] for mark, cells in readings.items()}
    mark = max(SEPARATORS, key=lambda mark: (len({*names[mark]} & {*features}), len(names[mark])))
    return names[mark], mark


def rows_of(text: str, mark: str, columns: int, limit: int) -> tuple[list[Row], int]:
    """The rows below the header, blank ones left out: up to `limit` of them, and how many there are.

    Raises:
        UnreadableError: a quote that is not closed.
        InputError: a row of another width than the header's.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    rows, count, number = list[Row](), 0, 1
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    try:
        next(reader)
        for number, cells in enumerate(reader, 2):
            if not cells and columns > 1:  # of one column, a blank row is an empty cell
                continue
            cells = cells or [""]
            if len(cells) != columns:
                problem = f"row {number:,} has {plural(len(cells), 'cell')}, the header {columns:,}"
                raise InputError("wrong_shape", f"{problem}; numbers have a point, and no separator of thousands")
            count += 1
            if count <= limit:
                rows.append((number, cells))
    except csv.Error as error:
        message = f"row {number + 1:,} is not CSV: {error}; a quote is opened and closed in the same cell"
        raise UnreadableError("invalid_csv", message) from None
    return rows, count


def numbers(cells: list[str]) -> list[float | str | None]:
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
