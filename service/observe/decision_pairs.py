"""Requests to decision models and their responses as rows: one for each question. No I/O."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from service.bulk.lines import JsonLines, LineReader, Row
from service.errors import Refusal, ServiceError
from service.http.error_answers import bad_row
from service.ids import MAX_ID, own_id_problem
from service.observe.observation import CallDefaults, Observation, RowError, unix_ms
from service.observe.observation_formats import promise_of
from service.predict.options import check_propensity, check_tag
from service.store.decision_rows import DecisionRow, QuestionVersion
from trueodds.bundle import ActAlone
from trueodds.errors import nearest
from trueodds.inputs.decisions import Answer, Pair, PairError, Shape, model_name, read_pair
from trueodds.inputs.decisions.names import digest_of
from trueodds.sums.rounding import Resolution
from trueodds.texts import short

KEYS = ("request", "response", "id", "time", "tag", "propensity")
"""Keys of a pair."""
BESIDE = ("tag", "act_alone", "resolution")
"""Keys of a JSON body for all pairs, beside `decisions`."""
ANY = ""
"""Key of the promise of questions that have none of their own."""
HASH_BYTES = 16
_EXAMPLE = '{"request": {...}, "response": {...}}'


@dataclass(frozen=True)
class PairDefaults:
    """Values that a call gives for all its pairs."""

    now_ms: int
    key: bytes
    """Key of the hashes of inputs."""
    keep_inputs: bool = False
    tag: str | None = None
    promises: Mapping[str, ActAlone] | None = None
    resolution: Resolution | None = None
    """Promises to act alone by question, as the store names it; ANY is that of all others."""

    def promise_of(self, model: str) -> ActAlone | None:
        promises = self.promises or {}
        return promises.get(model, promises.get(ANY))


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """Answer or refusal of one question in a pair."""

    pair: int
    """Number of the pair in the call."""
    id: str
    shape: Shape
    of: QuestionVersion
    decision: DecisionRow
    observation: Observation | None
    """The probabilities; None if the host declined the question."""
    positive: str | None


def promises_of(value: Any) -> dict[str, ActAlone]:
    """Read promises to act alone: one for all questions, or one by question.

    As a text, such as `threshold=.93,risk=.05,confidence=.95` or `spam:threshold=.9,risk=.05,confidence=.95;...`; as
    JSON, such a text, a promise as an object, or an object of promises by question.

    Raises:
        ServiceError: 422 for anything else.
    """
    if isinstance(value, dict) and "threshold" not in value:
        return {_model(name): promise_of(promise) for name, promise in value.items()}
    if not isinstance(value, str) or ":" not in value:
        return {ANY: promise_of(value)}
    named = [part.rpartition(":") for part in value.split(";") if part.strip()]
    return {_model(name.strip()): promise_of(promise) for name, _, promise in named}


def _model(question: str) -> str:
    return model_name(question) if question else ANY


def rows_of(number: int, value: Any, defaults: PairDefaults) -> list[QuestionRow | Refusal]:
    """Return one row per question of a pair; one refusal if nothing of the pair can be read."""
    if not isinstance(value, dict):
        return [bad_row(number, None, f"a row is {short(value)}; expected {_EXAMPLE}")]
    id_ = value.get("id")
    try:
        return _read(number, value, defaults)
    except (RowError, ServiceError, PairError) as error:
        return [bad_row(number, id_[:MAX_ID] if isinstance(id_, str) else None, str(error))]


def _read(number: int, value: dict[str, Any], defaults: PairDefaults) -> list[QuestionRow | Refusal]:
    if extra := value.keys() - {*KEYS}:
        name = min(extra)
        raise RowError(f"unknown key {short(name)}; allowed are {', '.join(KEYS)}.{nearest(name[:100], KEYS)}")
    if missing := [key for key in ("request", "response") if value.get(key) is None]:
        raise RowError(f"{missing[0]} is missing; expected {_EXAMPLE}")
    pair = read_pair(value["request"], value["response"])
    time, tag = value.get("time"), value.get("tag")
    own = CallDefaults(
        now_ms=defaults.now_ms if time is None else unix_ms(time, defaults.now_ms),
        tag=check_tag(defaults.tag if tag is None else tag, "tag"),
    )
    propensity = check_propensity(value.get("propensity"), "propensity")
    text = None if pair.input is None else _dump(pair.input, "the input")
    id_ = _id(value, defaults.key)
    hashed = None if text is None else _hash(defaults.key, text)
    kept = text.decode() if text is not None and defaults.keep_inputs else None
    row = DecisionRow(id_, own.now_ms, input=hashed, kept=kept)
    rows: list[QuestionRow | Refusal] = [bad_row(number, id_, str(problem)) for problem in pair.problems]
    for answer in pair.answers:
        promise = defaults.promise_of(answer.question.model)
        rows.append(_row(number, pair, answer, promise, row, own, propensity, has_time=time is not None))
    return rows


def _row(
    number: int,
    pair: Pair,
    answer: Answer,
    promise: ActAlone | None,
    row: DecisionRow,
    own: CallDefaults,
    propensity: float | None,
    *,
    has_time: bool,
) -> QuestionRow:
    question = answer.question
    # A version keeps what its first answer gave, so a promise that comes later begins another version.
    version = answer.version if promise is None else f"{answer.version}-{digest_of(promise.model_dump_json())}"
    model = question.model
    of = QuestionVersion(
        model, version, question.name, question.type, pair.served, question.wording, question.is_ordered
    )
    observation = None
    if answer.probabilities is not None:
        observation = Observation(
            row=number,
            id=row.id,
            model=model,
            version=version,
            form="probabilities",
            values=list(answer.probabilities),
            names=answer.classes,
            predicted=None,
            tag=own.tag,
            created_ms=own.now_ms,
            has_time=has_time,
            propensity=propensity,
            confidence_source="native",
        )
    is_declined = observation is None
    # A declined question keeps nothing of its input: no prediction stands for it that somebody could delete.
    decision = replace(row, is_declined=True, input=None, kept=None) if is_declined else replace(row, mass=answer.mass)
    return QuestionRow(number, row.id, pair.shape, of, decision, observation, question.positive)


def _id(value: dict[str, Any], key: bytes) -> str:
    """Return the id of a pair: the caller's, else the response's own, else one made of the pair by the keyed hash."""
    if value.get("id") is not None:
        if problem := own_id_problem(value["id"]):
            raise RowError(f"id {problem}")
        return str(value["id"])
    if not own_id_problem(own := value["response"].get("id")):
        return str(own)
    parts = [value["request"], value["response"], value.get("time")]
    return f"pair-{_hash(key, _dump(parts, 'the pair'))}"


def _dump(value: Any, what: str) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # the nesting exceeds what orjson writes, or an integer exceeds 64 bits
        raise RowError(f"{what} is nested too deeply; allowed are about 250 levels. Send it flatter") from None


def _hash(key: bytes, text: bytes) -> str:
    return hmac.digest(key, text, hashlib.sha256)[:HASH_BYTES].hex()


class PairLines(LineReader[QuestionRow]):
    """Reader of one pair per line. All rows of a pair have its number."""

    def __init__(self, defaults: PairDefaults, on_rows: Callable[[list[QuestionRow | Refusal]], None]) -> None:
        """Make the reader. `on_rows` receives the rows of each pair."""
        self._defaults, self._on_rows = defaults, on_rows
        self._lines = JsonLines[Any](lambda number, value: rows_of(number, value, defaults))

    def rows(self, block: bytes) -> list[Row[QuestionRow]]:
        flat = list[Row[QuestionRow]]()
        for number, rows in self._lines.rows(block):
            of_pair = [rows] if isinstance(rows, Refusal) else rows
            self._on_rows(of_pair)
            flat += [(number, row) for row in of_pair]
        return flat
