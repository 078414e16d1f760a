"""The shape of labels as they come in: one JSON value, or lines of CSV or JSON in a stream. No I/O."""

from __future__ import annotations

import contextlib
import csv
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from service.errors import ServiceError
from service.ids import MAX_ID, id_problem
from service.labels.refusals import FeedbackError
from service.store.label_rules import Refusal
from service.store.rows import Label, storable
from trueodds.texts import plural, short


def parse(tree: Any, max_labels: int) -> list[Label]:
    """Rows of a /feedback body: `{"id", "label"}` or `{"labels": [...]}`, `correct` and `model` at either level.

    Raises:
        ServiceError: a body of another shape, no rows or more than `max_labels`.
        FeedbackError: rows of another shape.
    """
    if not isinstance(tree, dict):
        raise _shape_error(f"the body is {_kind(tree)}")
    correct = tree.get("correct", False)
    if not isinstance(correct, bool):
        raise _shape_error(f"correct is {short(correct)}; allowed are true and false")
    model = tree.get("model")
    if problem := _model_problem(tree):
        raise _shape_error(problem)
    if "labels" not in tree:
        rows = [tree]
    elif extra := set(tree) - {"labels", "correct", "model"}:
        raise _shape_error(f"unknown key {min(extra)!r} beside labels")
    elif not isinstance(tree["labels"], list) or not tree["labels"]:
        raise _shape_error("labels must be a list of at least one row")
    else:
        rows = tree["labels"]
    if len(rows) > max_labels:
        message = f"{len(rows):,} labels in one call; the limit is {max_labels:,}. Send them in several calls"
        raise ServiceError(413, "too_many_labels", message)
    problems = [p for p in (row_problem(i, row) for i, row in enumerate(rows)) if p]
    if problems:
        raise FeedbackError(problems, len(rows))
    return [label_of(row, correct, model) for row in rows]


def label_of(row: dict[str, Any], correct: bool = False, model: str | None = None) -> Label:
    """A row that has no problem, with what the call says for all rows."""
    return Label(row["id"], row["label"], row.get("correct", correct), row.get("model", model))


def row_problem(row: int, value: Any) -> Refusal | None:
    """The problem with the shape of a row; None where there is none."""
    if not isinstance(value, dict):
        return _bad_row(row, None, f"a row is {_kind(value)}; expected an object with id and label")
    id_ = value.get("id")
    shown = id_[:MAX_ID] if isinstance(id_, str) else None
    if extra := value.keys() - {"id", "label", "correct", "model"}:
        return _bad_row(row, shown, f"unknown key {short(min(extra))}; allowed are id, label, correct and model")
    if missing := _missing(value, ("id", "label")):
        return _bad_row(row, shown, f"{missing} is missing; a row needs id and label")
    if problem := id_problem(id_):
        return _bad_row(row, shown, f"id {problem}, as /predict answered it")
    if isinstance(value["label"], bool) or not isinstance(value["label"], str | int):
        return _bad_row(row, shown, f"label is {short(value['label'])}; expected a class name or a whole-number index")
    if not isinstance(value.get("correct", False), bool):
        return _bad_row(row, shown, f"correct is {short(value['correct'])}; allowed are true and false")
    return _bad_row(row, shown, problem) if (problem := _model_problem(value)) else None


def _model_problem(value: dict[str, Any]) -> str:
    model = value.get("model")
    if model is None or (isinstance(model, str) and storable(model)):
        return ""
    return f"model is {short(model)}; expected the name of a model"


def _bad_row(row: int, id_: str | None, message: str) -> Refusal:
    return Refusal(row, id_, "invalid_row", message)


def _missing(value: dict[str, Any], keys: Iterable[str]) -> str:
    return " and ".join(key for key in keys if key not in value)


def _shape_error(problem: str) -> ServiceError:
    message = f'{problem}; expected {{"id": ..., "label": ...}} or {{"labels": [{{"id": ..., "label": ...}}, ...]}}'
    return ServiceError(422, "invalid_body", message)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


Row = tuple[int, Label | Refusal]
"""A row and its number."""


class LineReader(ABC):
    """Labels from the lines of a stream; `rows` may be called in any thread, one call after the other."""

    @abstractmethod
    def rows(self, block: bytes) -> list[Row]:
        """The rows of some whole lines; blank ones are left out.

        Raises:
            ServiceError: nothing can be read from here on, such as after a bad header.
        """

    def rest(self) -> list[Row]:
        """The rows that waited for more lines, once all have come; raises as `rows`."""
        return []


class JsonLines(LineReader):
    """One JSON object a line; rows are numbered from 0."""

    def __init__(self) -> None:
        self._next = 0

    def rows(self, block: bytes) -> list[Row]:
        return [self._row(line) for line in block.split(b"\n") if line.strip()]

    def _row(self, line: bytes) -> Row:
        number = self._next
        self._next += 1
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return number, _bad_row(number, None, f"not JSON: {error}")
        return number, row_problem(number, value) or label_of(value)


class CsvLines(LineReader):
    """CSV whose header names id and either label (a class's name) or index (a class's index), and maybe correct, model.

    In CSV nothing tells the text "3" from the number 3; so each has a column of its own. Rows are numbered as a
    spreadsheet does: the header is row 1, blank rows count, and a row with line ends between quotes is one.
    """

    def __init__(self) -> None:
        self._header: list[str] | None = None
        self._separator = ","
        self._row = 0
        """Number of the row that was read last."""
        self._open: list[bytes] = []
        """Lines from one on in which a quote was opened, and not closed so far."""

    def rows(self, block: bytes) -> list[Row]:
        lines = block.split(b"\n")
        return self._read(lines if lines[-1] else lines[:-1], last=False)

    def rest(self) -> list[Row]:
        rows = self._read([], last=True)
        if self._header is None:
            raise ServiceError(422, "invalid_header", f"the body is empty; expected {_COLUMNS}")
        return rows

    def _read(self, lines: list[bytes], *, last: bool) -> list[Row]:
        lines, rows = self._open + lines, list[Row]()
        self._open, at = [], 0
        while at < len(lines):
            taken = 1
            if lines[at].strip() and self._header is None:
                self._header, self._separator = _header(lines[at])
            elif lines[at].strip():
                try:
                    cells, taken = self._cells(lines, at, last)
                except ValueError as error:
                    rows.append((self._row + 1, _bad_row(self._row + 1, None, str(error))))
                else:
                    if not taken:
                        self._open = lines[at:]
                        break
                    rows.append((self._row + 1, self._label(self._row + 1, cells)))
            self._row, at = self._row + 1, at + taken
        return rows

    def _cells(self, lines: list[bytes], at: int, last: bool) -> tuple[list[str], int]:
        """The cells of the row that begins there, and of how many lines it is; 0 where more lines have to come first.

        A quote that is opened and not closed within LINES lines makes one bad row: those after it stand alone again.

        Raises:
            ValueError: the row is not UTF-8, or not CSV.
        """
        with contextlib.suppress(csv.Error):  # nearly every row is a line: that way is short
            return next(csv.reader([_text(lines[at])], delimiter=self._separator, strict=True)), 1
        taken = 0

        def texts() -> Iterator[str]:
            nonlocal taken
            for line in lines[at : at + LINES]:
                taken += 1
                yield _text(line) + "\n"

        try:
            return next(csv.reader(texts(), delimiter=self._separator, strict=True)), taken
        except csv.Error as error:
            if not last and taken == len(lines) - at < LINES:
                return [], 0
            raise ValueError(f"not CSV: {error}; a quote is opened and closed in the same cell") from None

    def _label(self, row: int, cells: list[str]) -> Label | Refusal:
        assert self._header is not None
        if len(cells) != len(self._header):
            return _bad_row(row, None, f"the row has {plural(len(cells), 'cell')}, the header {len(self._header)}")
        value: dict[str, Any] = dict(zip(self._header, cells, strict=True))
        if "index" in value:
            index = value.pop("index").strip()
            if not (index.isascii() and index.isdecimal() and len(index) < 10):
                return _bad_row(row, value["id"], f"index is {short(index)}; expected a whole number from 0 on")
            value["label"] = int(index)
        value["correct"] = _TRUTH.get(value.get("correct", "").strip().lower())
        value["model"] = value.get("model") or None
        if value["correct"] is None:
            return _bad_row(row, value["id"], f"correct is {short(cells)}; allowed are true, false, 1, 0 and nothing")
        return row_problem(row, value) or label_of(value)


LINES = 20
"""Lines of a CSV row at most."""
SEPARATORS = (",", ";", "\t")
_COLUMNS = (
    "a header with the columns id and label (or index), and maybe correct and model, separated by commas, semicolons or"
    " tabs"
)
_TRUTH = {"": False, "false": False, "0": False, "true": True, "1": True}


def _header(line: bytes) -> tuple[list[str], str]:
    """The names of the columns, and what separates them: of a right header one reading only is one."""
    try:
        text = _text(line.removeprefix(b"\xef\xbb\xbf"))
        readings = {mark: next(csv.reader([text], delimiter=mark, strict=True)) for mark in SEPARATORS}
    except csv.Error as error:
        raise ServiceError(422, "invalid_header", f"not CSV: {error}; expected {_COLUMNS}") from None
    except ValueError as error:
        raise ServiceError(422, "invalid_header", f"{error}; expected {_COLUMNS}") from None
    known = {"id", "label", "index", "correct", "model"}
    for mark, cells in readings.items():
        names = [name.strip().lower() for name in cells]
        unique = len(set(names)) == len(names) and set(names) <= known
        if unique and "id" in names and ("label" in names) != ("index" in names):
            return names, mark
    raise ServiceError(422, "invalid_header", f"the CSV begins with {short(text)}; expected {_COLUMNS}")


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the row is not UTF-8; from a spreadsheet save it as 'CSV UTF-8'") from None
