"""Messages of topics as bodies of the service's routes. No I/O.

A message holds what a request to its route would hold: one JSON object, a JSON object with a list of rows, or JSON
lines. The service judges the rows. Here only what a message implies is added: an id, the time, the model of labels.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trueodds.client.streams.offsets import Offsets

MOST_ID = 128
"""Longest id that the service takes."""
NOT_YET = ("unknown_id", "unknown_model")
"""The service's codes for a label whose answer may still arrive: it does not have the answer, or none of its model."""


@dataclass(frozen=True)
class Door:
    """Route of the service that takes the messages of a topic."""

    path: str
    noun: str
    """Name of the rows in messages."""
    rows: str
    """Key of the list in a JSON body with several rows."""
    is_of_labels: bool = False


ANSWERS = Door("/observe", "answers", "observations")
DECISIONS = Door("/observe/decisions", "decisions", "decisions")
LABELS = Door("/feedback", "labels", "labels", is_of_labels=True)
DOORS = (ANSWERS, DECISIONS, LABELS)
"""All doors, in the order in which the messages of a batch are sent: a label follows its answer."""


@dataclass(frozen=True)
class Message:
    """A message of a topic."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    time_ms: int | None = None
    """The message's timestamp, if the topic keeps one."""
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> str:
        """Topic, partition and offset, for messages to people."""
        return f"{self.topic}[{self.partition}] at offset {self.offset}"

    def id_of(self, row: int, count: int) -> str:
        """Return the id of a row without one. It is the same whenever the message is read."""
        tail = f":{self.partition}:{self.offset}" + (f":{row}" if count > 1 else "")
        topic = self.topic
        if len(f"kafka:{topic}{tail}") > MOST_ID:
            topic = hashlib.sha256(topic.encode()).hexdigest()[:32]
        return f"kafka:{topic}{tail}"


class RowProblem(NamedTuple):
    """Reason why the service refused a row."""

    row: int | None
    """Number of the row among those of the message, from 0; None: the message as a whole."""
    code: str
    message: str


@dataclass(eq=False)
class Item:
    """A message on its way to the service."""

    message: Message
    door: Door
    offsets: Offsets
    """Offsets of the message's partition, as this consumer has it."""
    lines: list[bytes] = field(default_factory=list)
    """JSON lines, each stored by itself."""
    tree: dict[str, Any] | None = None
    """JSON body, in place of lines."""
    ids: frozenset[str] = frozenset()
    """Ids of labels."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of rows by outcome, after the message was sent."""
    problems: list[RowProblem] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether the answer of one of its labels may still arrive."""
        return self.door.is_of_labels and any(problem.code in NOT_YET for problem in self.problems)

    def begin(self) -> None:
        """Forget the outcomes of an earlier try."""
        self.outcomes.clear()
        self.problems.clear()

    def refuse(self, row: int | None, code: str, message: str) -> None:
        """Add a refused row. None: the whole message is refused."""
        self.problems.append(RowProblem(row, code, message))

    @property
    def reason(self) -> str:
        """Why the message was refused: the first problem, with the number of its line or row if there are several."""
        first, count = self.problems[0], len(self.problems)
        several = f"{count} rows; " if count > 1 else ""
        if first.row is None or (self.tree is None and len(self.lines) < 2):
            return several + first.message
        if self.tree is not None:
            return f"{several}{self.door.rows}[{first.row}]: {first.message}"
        given = (self.message.value or b"").split(b"\n")
        numbers = [number for number, line in enumerate(given, 1) if line.strip()]
        return f"{several}line {numbers[first.row]}: {first.message}"


class _RepeatedNameError(ValueError):
    """Error: a JSON object has a name twice, so that parsing it would lose a value."""


def item_of(message: Message, door: Door, offsets: Offsets, label_model: str | None = None) -> Item:
    """Return a message as rows of its route.

    Rows without an id get one made of topic, partition and offset. Answers without a time get the message's. Labels
    without a model get `label_model`. A message that is not JSON is passed on, so that the service says what is wrong.
    A list is refused here.
    """
    item = Item(message, door, offsets)
    if message.value is None or not message.value.strip():
        what = "no value (a tombstone)" if message.value is None else "an empty value"
        item.refuse(None, "no_value", f"the message has {what}; expected JSON")
        return item
    try:
        tree = _parse(message.value)
    except _RepeatedNameError:  # one line, so that the service names the fault
        item.lines = [message.value.replace(b"\n", b" ").strip()]
    except (ValueError, RecursionError):
        parts = [line for line in message.value.split(b"\n") if line.strip()]
        trees = [_row_of(line) for line in parts]
        whole = len(parts) == 1
        item.lines = [
            line if whole or tree is None else _line(_complete_row(tree, item, row, len(parts), label_model))
            for row, (line, tree) in enumerate(zip(parts, trees, strict=True))
        ]
    else:
        if isinstance(tree, list):
            expected = f'expected one object, JSON lines, or {{"{door.rows}": [...]}}'
            item.refuse(None, "invalid_row", f"the message is a JSON list; {expected}")
        elif isinstance(tree, dict) and isinstance(rows := tree.get(door.rows), list):
            shared = label_model if not tree.keys() & {"model", "question"} else None
            item.tree = tree | {
                door.rows: [
                    _complete_row(row, item, number, len(rows), shared) if isinstance(row, dict) else row
                    for number, row in enumerate(rows)
                ]
            }
        else:
            item.lines = [_line(_complete_row(tree, item, 0, 1, label_model) if isinstance(tree, dict) else tree)]
    if door.is_of_labels:
        item.ids = _ids_of(item)
    return item


def _complete_row(row: dict[str, Any], item: Item, number: int, count: int, label_model: str | None) -> dict[str, Any]:
    """Return a row with what its message implies."""
    message, more = item.message, dict[str, Any]()
    if item.door.is_of_labels:
        if label_model is not None and row.get("model") is None and row.get("question") is None:
            more["model"] = label_model
        return row | more
    response = row.get("response")
    if row.get("id") is None and not (isinstance(response, dict) and response.get("id")):
        more["id"] = message.id_of(number, count)
    if row.get("time") is None and message.time_ms is not None:
        more["time"] = message.time_ms
    return row | more


def _ids_of(item: Item) -> frozenset[str]:
    rows = item.tree.get(item.door.rows) if item.tree is not None else [_row_of(line) for line in item.lines]
    found = (row.get("id") for row in rows or () if isinstance(row, dict))
    return frozenset(id_ for id_ in found if isinstance(id_, str))


def _row_of(line: bytes) -> dict[str, Any] | None:
    """Return the object in a line; None if there is none, or one that the service refuses anyway."""
    try:
        tree = _parse(line)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _parse(text: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises:
        ValueError: It is not JSON, or an object has a name twice.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text.decode("utf-8"), object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        raise _RepeatedNameError
    return tree


def _line(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def query_of(item: Item, query: Mapping[str, str]) -> dict[str, str]:
    """Return the query of a JSON body: the service wants each value once, in the body or in the query.

    A body's level of sets has its own number of rows, and its classes as an object say whether they are ordered.
    """
    if item.tree is None:
        return dict(query)
    own = {name for name in query if item.tree.get(name) is not None}
    if "set_level" in own:
        own.add("set_rows")
    if isinstance(item.tree.get("classes"), dict):
        own.add("ordered")
    return {name: value for name, value in query.items() if name not in own}
