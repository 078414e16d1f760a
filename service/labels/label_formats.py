"""Formats of labels: one JSON value, or a stream of CSV or JSON lines. No I/O."""

from __future__ import annotations

from typing import Any

from service.bulk.lines import WHOLE, CsvLines, JsonLines, whole_number
from service.errors import Refusal, ServiceError
from service.http.error_answers import RefusedRowsError, bad_row
from service.ids import MAX_ID, id_problem
from service.store.rows import Label, storable
from trueodds.inputs.decisions import model_name
from trueodds.inputs.table import SEPARATED
from trueodds.texts import alike, as_name, as_whole, short, without_point

_CLASS = frozenset({"label", "index"})
"""Keys for the class of a row: its name or its position. Each row has one of them."""
_SHARED = {"correct", "model", "question"}
"""Keys that a call may give for all rows."""
_KEYS = _CLASS | {"id"} | _SHARED
_OF_JUDGES = frozenset({"judge", "labelled_by", "source"})
"""Keys by which a caller may mark a judge's label. They are refused, because every label counts as a human one."""
_NEEDED = "a row needs an id, and either label (the name of a class) or index (its position, from 0)"


def parse(tree: Any, max_labels: int) -> list[Label]:
    """Read the rows of a /feedback body.

    The body is `{"id", "label"}`, `{"id", "index"}` or `{"labels": [...]}`. `correct`, `model` and `question` may be at
    either level.

    Raises:
        ServiceError: The body has another shape, no rows, or more than `max_labels`.
        RefusedRowsError: Some rows have another shape.
    """
    if not isinstance(tree, dict):
        raise _shape_error(f"the body is {_kind(tree)}")
    correct = tree.get("correct", False)
    if not isinstance(correct, bool):
        raise _shape_error(f"correct is {short(correct)}; allowed are true and false")
    if problem := _model_problem(tree):
        raise _shape_error(problem)
    if "labels" not in tree:
        rows = [tree]
    elif extra := set(tree) - {"labels"} - _SHARED:
        raise _shape_error(f"unknown key {min(extra)!r} beside labels{_of_judges(extra)}")
    elif not isinstance(tree["labels"], list) or not tree["labels"]:
        raise _shape_error("labels must be a list of at least one row")
    else:
        rows = tree["labels"]
    if len(rows) > max_labels:
        message = f"the call has {len(rows):,} labels; the limit is {max_labels:,}. Send them in several calls"
        raise ServiceError(413, "too_many_labels", message)
    model = _model(tree)
    is_question = tree.get("question") is not None
    problems = [p for p in (row_problem(i, row, is_question=is_question) for i, row in enumerate(rows)) if p]
    if problems:
        raise RefusedRowsError(problems, len(rows))
    return [label_of(row, correct, model) for row in rows]


def label_of(row: dict[str, Any], correct: bool = False, model: str | None = None) -> Label:
    """Convert a valid row, with the values that the call gives for all rows."""
    own = _model(row)
    return Label(row["id"], _class(row), row.get("correct", correct), model if own is None else own)


def _class(row: dict[str, Any]) -> str | int:
    if "index" in row:
        return int(row["index"])
    label = row["label"]
    return str(label).lower() if isinstance(label, bool) else str(as_name(label))


def _model(tree: dict[str, Any]) -> str | None:
    """Return the model of a row or a call. That of a question has its name, as the store can keep it."""
    question = tree.get("question")
    return tree.get("model") if question is None else model_name(question)


def row_problem(row: int, value: Any, *, is_question: bool = False) -> Refusal | None:
    """Return the problem with the shape of a row, or None. `is_question` says that the call names a question."""
    if not isinstance(value, dict):
        return bad_row(row, None, f"a row is {_kind(value)}; expected an object with id and label (or index)")
    id_ = value.get("id")
    shown = id_[:MAX_ID] if isinstance(id_, str) else None
    if extra := value.keys() - _KEYS:
        allowed = "id, label, index, correct, model and question"
        return bad_row(row, shown, f"unknown key {short(min(extra))}; allowed are {allowed}{_of_judges(extra)}")
    if "id" not in value:
        return bad_row(row, shown, f"id is missing; {_NEEDED}")
    if len(value.keys() & _CLASS) != 1:
        both = "label and index are both given" if "label" in value else "label is missing"
        return bad_row(row, shown, f"{both}; {_NEEDED}")
    if problem := id_problem(id_):
        return bad_row(row, shown, f"id {problem}, as /predict returned it")
    if problem := _class_problem(value, is_question=is_question or value.get("question") is not None):
        return bad_row(row, shown, problem)
    if not isinstance(value.get("correct", False), bool):
        return bad_row(row, shown, f"correct is {short(value['correct'])}; allowed are true and false")
    return bad_row(row, shown, problem) if (problem := _model_problem(value)) else None


def _of_judges(extra: set[str]) -> str:
    """Say what to do with a judge's labels; "" if no key marks one."""
    if not extra & _OF_JUDGES:
        return ""
    return (
        ". Every label of /feedback counts as a human one; send a judge's labels to POST /judge-labels, without this"
        " key"
    )


def _class_problem(value: dict[str, Any], *, is_question: bool) -> str:
    if "index" in value:
        index = as_whole(value["index"])
        return f"index is {short(value['index'])}; {WHOLE}" if index is None or index < 0 else ""
    label = value["label"]
    if isinstance(as_name(label), str) or (is_question and isinstance(label, bool)):
        return ""
    cure = f'. Send a boolean as the name of its class, such as "{label}"' if isinstance(label, bool) else ""
    return f"label is {short(label)}; expected the name of a class, as a text or a whole number{cure}"


def _model_problem(value: dict[str, Any]) -> str:
    model, question = value.get("model"), value.get("question")
    if model is not None and question is not None:
        return f"model is {short(model)} and question is {short(question)}; give one of them: a question is a model"
    if model is not None and not (isinstance(model, str) and storable(model)):
        return f"model is {short(model)}; expected the name of a model"
    if question is not None and not (isinstance(question, str) and question):
        return f"question is {short(question)}; expected the name of a question, as the request gave it"
    return ""


def _shape_error(problem: str) -> ServiceError:
    message = f'{problem}; expected {{"id": ..., "label": ...}} or {{"labels": [{{"id": ..., "label": ...}}, ...]}}'
    return ServiceError(422, "invalid_body", message)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def json_lines() -> JsonLines[Label]:
    """Return a reader of labels with one JSON object per line."""
    return JsonLines(lambda number, value: row_problem(number, value) or label_of(value))


def csv_lines() -> CsvLines[Label]:
    """Return a reader of labels in CSV. Its header has id, and label (name of a class) or index (its position)."""
    return CsvLines(_header, _label, _COLUMNS)


_COLUMNS = f"a header with the columns id and label (or index), and optionally correct, model and question, {SEPARATED}"
_TRUTH = {"": False, "false": False, "0": False, "true": True, "1": True}


def _header(cells: list[str]) -> list[str] | None:
    keys = {written: key for key, written in alike(sorted(_KEYS), cells).items()}
    names = [keys.get(cell, cell) for cell in cells]
    unique = len(set(names)) == len(names) and set(names) <= _KEYS
    return names if unique and "id" in names and ("label" in names) != ("index" in names) else None


def _label(row: int, cells: dict[str, str]) -> Label | Refusal:
    value: dict[str, Any] = dict(cells)
    if "index" in value:
        try:
            value["index"] = whole_number("index", value["index"])
        except ValueError as error:
            return bad_row(row, value["id"], str(error))
    value["correct"] = _TRUTH.get(without_point(value.get("correct", "").lower()))
    value["model"], value["question"] = value.get("model") or None, value.get("question") or None
    if value["correct"] is None:
        shown = short(cells["correct"])
        return bad_row(row, value["id"], f"correct is {shown}; allowed are true, false, 1, 0 and an empty cell")
    return row_problem(row, value) or label_of(value)
