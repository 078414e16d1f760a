"""Converts requests to decision models and their responses, in the forms of several clients, to JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from typing import Any

from trueodds.client.observations import plain_time
from trueodds.client.responses import add_fields, fields_of
from trueodds.errors import ConfigError, unknown
from trueodds.texts import short

PAIR_BYTES = 2_000_000
"""Size in bytes of the pairs in one request, except for a single larger one."""
KEYS = ("request", "response", "id", "time", "tag", "propensity")
"""Keys of a pair."""
_FORMS = "a mapping, JSON text, or an object with to_dict(), model_dump() or json(), such as those of openai and httpx"

Pair = Mapping[str, Any] | tuple[Any, Any]
"""Request and response, or a mapping with KEYS."""


@dataclass(frozen=True)
class DecidedQuestion:
    """Outcome of one question of a pair."""

    id: str
    """Id of the pair. Send labels with it and the question's name."""
    question: str
    model: str
    """Name of the question in the service: the model of its report."""
    version: str
    """Served model, and a hash of the question's type, instructions and options."""
    outcome: str
    """`stored`, `already_known`, or `declined` if the host declined the question."""
    acts: bool | None = None
    """Whether the answer acts alone. None without a promise to act alone."""
    audit: bool = False
    """Whether the service asks for the label of an answer that acts alone."""


@dataclass(frozen=True)
class DecisionSummary:
    """Number of questions by outcome. The three numbers add up to the questions sent."""

    stored: int = 0
    """Answers stored for the first time."""
    already_known: int = 0
    """Answers that were stored already. They count once."""
    declined: int = 0
    """Questions that the host declined. They have no probability."""
    answers: tuple[DecidedQuestion, ...] = field(default=(), repr=False, compare=False)
    """All of them, in the order of the pairs and of their questions."""

    def __add__(self, other: DecisionSummary) -> DecisionSummary:
        return add_fields(self, other)


def pair_of(
    request: Any,
    response: Any,
    id_: str | None = None,
    time: datetime | float | None = None,
    tag: str | None = None,
    propensity: float | None = None,
) -> dict[str, Any]:
    """Return the pair of a request and its response, with its own keys."""
    own = {"id": id_, "time": time, "tag": tag, "propensity": propensity}
    return {"request": request, "response": response} | {key: value for key, value in own.items() if value is not None}


def line_of(number: int, pair: Any) -> bytes:
    """Return a pair as a line of JSON.

    Raises:
        ConfigError: It is not a pair, or holds something that is not JSON. The message has its number.
    """
    if isinstance(pair, tuple) and len(pair) == 2:
        pair = pair_of(*pair)
    if not isinstance(pair, Mapping):
        raise ConfigError(f"pair {number} is {short(pair)}; expected (request, response), or a mapping of {KEYS}")
    if strange := [key for key in pair if key not in KEYS]:
        raise unknown(f"key of pair {number}", strange[0], KEYS)
    if missing := [key for key in ("request", "response") if pair.get(key) is None]:
        raise ConfigError(f"pair {number} has no {missing[0]}; expected (request, response), or a mapping of {KEYS}")
    tree = {key: value for key, value in pair.items() if value is not None}
    try:
        tree |= {key: plain(tree[key], f"the {key} of pair {number}") for key in ("request", "response")}
        if "time" in tree:
            tree["time"] = plain_time(tree["time"])
        return json.dumps(
            tree, allow_nan=False, default=lambda value: plain(value, f"a value of pair {number}")
        ).encode()
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"pair {number} is not JSON: {error or 'it is nested too deeply'}") from None


def plain(value: Any, what: str) -> Any:
    """Convert a request or a response to JSON values.

    Raises:
        ConfigError: It has none of the known forms. The message begins with `what`.
    """
    try:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, str | bytes | bytearray):
            return json.loads(value)
        for name in (
            "to_dict",
            "model_dump",
            "json",
        ):  # openai's objects have the first two, httpx's responses the last
            if callable(method := getattr(value, name, None)) and not isinstance(value, type):
                return method(mode="json") if name == "model_dump" else method()
        if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        body = getattr(value, "content", None) or getattr(value, "body", None)  # httpx's and requests' requests
        if isinstance(body, str | bytes):
            return json.loads(body)
    except ValueError as error:  # also of a whole number with more than 4,300 digits
        raise ConfigError(f"{what} is not JSON: {error}") from None
    raise ConfigError(f"{what} is {short(value)}; expected {_FORMS}")


def chunks(pairs: Iterable[Pair]) -> Iterator[list[bytes]]:
    """Yield the lines of each request to the service. For errors see `line_of`."""
    chunk, size = list[bytes](), 0
    for number, pair in enumerate(pairs):
        line = line_of(number, pair) + b"\n"
        if chunk and size + len(line) > PAIR_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk


def summary_of(tree: Any) -> tuple[DecisionSummary, list[dict[str, Any]]]:
    """Read the answer of /observe/decisions with one line per question. Return the summary and the refused questions.

    Raises:
        LookupError, TypeError: The answer has another form.
    """
    answers, problems = list[DecidedQuestion](), list[dict[str, Any]]()
    for line in tree if isinstance(tree, list) else [tree]:
        if line["outcome"] == "failed":
            problems.append({name: line[name] for name in ("row", "id", "code", "message")})
            continue
        decision = line.get("decision")
        named = {"acts": None if decision is None else decision == "act", "audit": line.get("audit", False)}
        answers.append(fields_of(DecidedQuestion, {**line, **named}))
    counts = {name: sum(one.outcome == name for one in answers) for name in ("stored", "already_known", "declined")}
    return DecisionSummary(**counts, answers=tuple(answers)), problems
