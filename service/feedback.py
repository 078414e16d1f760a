"""The rules of labels: which are new, which are known, which conflict, and how they move the sums. No I/O.

A batch is all or nothing. A store calls `plan` inside the transaction that will write what it returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.config import nearest
from pipeline.metrics import CalibrationSums
from pipeline.metrics.inputs import Array
from service.errors import ServiceError, short
from service.records import GivenLabel, LabelCounts, StoredAnswer, Version

SHOWN = 20
"""Bad rows that an error lists."""
MAX_ID = 128
"""Characters in an id."""


@dataclass(frozen=True)
class Problem:
    """Why one row cannot be stored."""

    row: int
    id: str | None
    status: int
    code: str
    message: str


class FeedbackError(ServiceError):
    """A batch with at least one bad row; its status is that of the first."""

    def __init__(self, problems: list[Problem], rows: int) -> None:
        first, bad = problems[0], len(problems)
        where = "" if rows == 1 else f" ({bad:,} of {rows:,} rows are bad; this is row {first.row})"
        shown = [{"row": p.row, "id": p.id, "code": p.code, "message": p.message} for p in problems[:SHOWN]]
        super().__init__(
            first.status,
            first.code,
            f"{first.message}{where}. Nothing was stored",
            details={"problems": shown, "problem_count": bad},
        )


@dataclass
class Plan:
    """What to write: label indices by prediction id, and per version key the 7 x 3000 change of its sums."""

    new: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    already_known: int = 0
    sums: dict[int, Array] = field(default_factory=dict)

    @property
    def counts(self) -> LabelCounts:
        return LabelCounts(len(self.new), self.already_known, len(self.changed))


def parse(tree: Any, max_labels: int) -> list[GivenLabel]:
    """Rows of a /feedback body: `{"id", "label"}` or `{"labels": [...]}`, `correct` at either level.

    Raises:
        ServiceError: a body of another shape, no rows or more than `max_labels`.
        FeedbackError: rows of another shape.
    """
    if not isinstance(tree, dict):
        raise _shape_error(f"the body is {_kind(tree)}")
    correct = tree.get("correct", False)
    if not isinstance(correct, bool):
        raise _shape_error(f"correct is {short(correct)}; allowed are true and false")
    if "labels" not in tree:
        rows = [tree]
    elif extra := set(tree) - {"labels", "correct"}:
        raise _shape_error(f"unknown key {min(extra)!r} beside labels")
    elif not isinstance(tree["labels"], list) or not tree["labels"]:
        raise _shape_error("labels must be a list of at least one row")
    else:
        rows = tree["labels"]
    if len(rows) > max_labels:
        message = f"{len(rows):,} labels in one call; the limit is {max_labels:,}. Send them in several calls"
        raise ServiceError(413, "too_many_labels", message)
    problems = [p for p in (_row_problem(i, row) for i, row in enumerate(rows)) if p]
    if problems:
        raise FeedbackError(problems, len(rows))
    return [GivenLabel(row["id"], row["label"], row.get("correct", correct)) for row in rows]


def plan(labels: list[GivenLabel], found: Mapping[str, StoredAnswer], versions: Mapping[int, Version]) -> Plan:
    """Decide about every row.

    Raises:
        FeedbackError: at least one row has an unknown id (404), a class that does not exist (422), or a label
            other than the stored one, or than the same id's earlier in the batch (409).
    """
    result, problems = Plan(), []
    indices = {key: {name: i for i, name in enumerate(version.classes)} for key, version in versions.items()}
    for row, given in enumerate(labels):
        answer = found.get(given.id)
        if answer is None:
            message = f"no prediction has the id {short(given.id)}; send an id that /predict answered"
            problems.append(Problem(row, given.id, 404, "unknown_id", message))
            continue
        classes = versions[answer.version].classes
        label = _index(given.label, indices[answer.version], len(classes))
        if label is None:
            problems.append(Problem(row, given.id, 422, "unknown_class", _class_message(given.label, classes)))
        elif problem := _settle(result, row, given, answer, label, classes):
            problems.append(problem)
    if problems:
        raise FeedbackError(problems, len(labels))
    result.sums = _changes(result, found, versions)
    return result


def _settle(
    result: Plan, row: int, given: GivenLabel, answer: StoredAnswer, label: int, classes: tuple[str, ...]
) -> Problem | None:
    earlier = result.seen.setdefault(given.id, label)
    if earlier != label:
        where, known, cure = "earlier in this call", earlier, "send one label for each id"
    elif answer.label is None or answer.label == label or given.correct:
        _accept(result, given.id, answer.label, label)
        return None
    else:
        where, known, cure = "already", answer.label, 'add "correct": true to replace it'
    message = f"{given.id} has the label {classes[known]!r} {where}, now {classes[label]!r} is given; {cure}"
    return Problem(row, given.id, 409, "conflicting_label", message)


def _accept(result: Plan, id_: str, known: int | None, label: int) -> None:
    if known == label or id_ in result.new or id_ in result.changed:
        result.already_known += 1
    elif known is None:
        result.new[id_] = label
    else:
        result.changed[id_] = label


def _changes(plan: Plan, found: Mapping[str, StoredAnswer], versions: Mapping[int, Version]) -> dict[int, Array]:
    ids_by_version: dict[int, list[str]] = defaultdict(list)
    for id_ in (*plan.new, *plan.changed):
        ids_by_version[found[id_].version].append(id_)
    return {key: _change(ids, plan, found, versions[key]) for key, ids in ids_by_version.items()}


def _change(ids: list[str], plan: Plan, found: Mapping[str, StoredAnswer], version: Version) -> Array:
    """New minus old contribution: a correction changes neither count nor confidence, so these move by exactly 0."""
    logits_NC = np.frombuffer(b"".join(found[i].logits for i in ids), "<f4").reshape(len(ids), len(version.classes))
    probabilities_NC = version.calibrator(logits_NC)
    after_N = np.array([plan.seen[i] for i in ids])
    before_N = np.array([-1 if (label := found[i].label) is None else label for i in ids])
    relabelled_N = before_N >= 0
    cells = CalibrationSums.zero().cells
    if not relabelled_N.all():
        fresh_N = ~relabelled_N
        cells = cells + CalibrationSums.from_probabilities(probabilities_NC[fresh_N], after_N[fresh_N]).cells
    if relabelled_N.any():
        rows_MC = probabilities_NC[relabelled_N]
        new = CalibrationSums.from_probabilities(rows_MC, after_N[relabelled_N])
        old = CalibrationSums.from_probabilities(rows_MC, before_N[relabelled_N])
        cells = cells + (new.cells - old.cells)
    return cells


def _index(label: str | int, index_of: Mapping[str, int], classes: int) -> int | None:
    if isinstance(label, str):
        return index_of.get(label)
    return label if 0 <= label < classes else None


def _class_message(label: str | int, classes: tuple[str, ...]) -> str:
    if isinstance(label, int):
        return (
            f"there is no class {short(label)}; allowed are the indices 0..{len(classes) - 1}, or a class by its name"
        )
    few = ", ".join(repr(name) for name in classes[:5]) + (f", ... ({len(classes)} in all)" if len(classes) > 5 else "")
    by_index = " A class index is sent without quotes." if label.isdecimal() else ""
    return f"there is no class {short(label)}; allowed are {few}.{nearest(label[:100], classes)}{by_index}"


def _row_problem(row: int, value: Any) -> Problem | None:
    if not isinstance(value, dict):
        return _bad_row(row, None, f"a row is {_kind(value)}; expected an object with id and label")
    id_ = value.get("id")
    shown = id_ if isinstance(id_, str) else None
    if extra := value.keys() - {"id", "label", "correct"}:
        return _bad_row(row, shown, f"unknown key {short(min(extra))}; allowed are id, label and correct")
    if missing := _missing(value, ("id", "label")):
        return _bad_row(row, shown, f"{missing} is missing; a row needs id and label")
    if not isinstance(id_, str):
        return _bad_row(row, None, f"id is {short(id_)}; expected the text that /predict answered")
    if len(id_) > MAX_ID:
        return _bad_row(row, None, f"id has {len(id_):,} characters; at most {MAX_ID} are allowed")
    if isinstance(value["label"], bool) or not isinstance(value["label"], str | int):
        return _bad_row(row, shown, f"label is {short(value['label'])}; expected a class name or a whole-number index")
    if not isinstance(value.get("correct", False), bool):
        return _bad_row(row, shown, f"correct is {short(value['correct'])}; allowed are true and false")
    return None


def _bad_row(row: int, id_: str | None, message: str) -> Problem:
    return Problem(row, id_, 422, "invalid_row", message)


def _missing(value: dict[str, Any], keys: Iterable[str]) -> str:
    return " and ".join(key for key in keys if key not in value)


def _shape_error(problem: str) -> ServiceError:
    message = f'{problem}; expected {{"id": ..., "label": ...}} or {{"labels": [{{"id": ..., "label": ...}}, ...]}}'
    return ServiceError(422, "invalid_body", message)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
