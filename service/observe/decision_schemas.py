"""Documented bodies of POST /observe/decisions, and its answer."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, Field

from service.bulk.lines import NDJSON
from service.bulk.report import BulkReport
from service.http import documentation
from service.http.documentation import TEXT, body_of, list_of, object_of
from service.http.error_answers import BadRow, bad_rows
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.observe.decision_pairs import KEYS
from service.observe.observe_schemas import RESOLUTION
from service.predict.options import MAX_TAG
from trueodds.bundle import Decision
from trueodds.bundle.act_alone import EXAMPLE
from trueodds.inputs.decisions import Shape


class AnsweredQuestion(BaseModel):
    """Question of a pair in a JSON body."""

    row: int = Field(description="Number of the pair in the call, from 0.")
    id: str = Field(description="Id of the pair. Send labels with it and `question`.")
    question: str
    model: str = Field(description="Name of the question in the store: the model of its report.")
    version: str = Field(description="Served model, and hash of type, instructions and options.")
    shape: Shape
    outcome: str = Field(description="stored, already_known or declined")
    decision: Decision | None = Field(None, exclude_if=lambda value: value is None)
    audit: bool | None = Field(None, exclude_if=lambda value: value is None)


class DecisionSummary(BaseModel):
    """Outcomes of the questions. The four counts add up to `questions`."""

    pairs: int
    questions: int = Field(description="Questions of all pairs. A pair that cannot be read counts as one.")
    shapes: dict[Shape, int] = Field(description="Number of pairs that were read, by format.")
    stored: int
    already_known: int = Field(description="The same answer was stored already. It counts once.")
    declined: int = Field(description="Questions that the host declined. They are counted and have no probability.")
    failed: int
    problems: list[BadRow] = Field(description="The first 20 questions that failed. `row` is the number of the pair.")
    answers: list[AnsweredQuestion] = Field(
        default_factory=list,
        description="For a JSON body: every question that did not fail.",
        exclude_if=lambda value: not value,
    )

    @classmethod
    def of(cls, report: BulkReport, pairs: int, shapes: dict[Shape, int]) -> DecisionSummary:
        """Return the summary of a report on rows."""
        counts = {name: report.outcomes[name] for name in ("stored", "already_known", "declined", "failed")}
        return cls(pairs=pairs, questions=report.rows, shapes=shapes, **counts, problems=bad_rows(report.refusals))


_PAIR_KEYS: dict[str, dict[str, Any]] = {
    "request": {"type": "object", "description": "Request to the decision model, as it was sent."},
    "response": {"type": "object", "description": "Its response, as it was received."},
    "id": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_ID,
        "description": "Your own id. Default: the response's `id`, else one made of the pair.",
    },
    "time": {
        "oneOf": [{"type": "string"}, {"type": "number"}],
        "description": "ISO 8601, or Unix time whose size tells its unit. Default: now.",
    },
    "tag": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_TAG,
        "description": "Tag, by which reports can be split.",
    },
    "propensity": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "description": "Probability that the answers get labels, if you know it.",
    },
}
assert tuple(_PAIR_KEYS) == KEYS
_PAIR = object_of(_PAIR_KEYS, ["request", "response"])
_PAIRS = object_of(
    {
        "decisions": list_of(_PAIR, minItems=1, description="Several pairs. Each has the keys of a single one."),
        "tag": {**_PAIR_KEYS["tag"], "description": "Tag of pairs that name none."},
        "act_alone": {
            "oneOf": [TEXT, {"type": "object"}],
            "description": f"Promise to act alone, such as {EXAMPLE}, or an object with a promise per question.",
        },
        "resolution": {"oneOf": [TEXT, {"type": "number"}], "description": RESOLUTION},
    },
    ["decisions"],
)
BODY = body_of({JSON: {"oneOf": [_PAIR, _PAIRS]}, NDJSON: TEXT})


def examples() -> documentation.Examples:
    """Return example pairs in both formats."""
    predicate = {"type": "predicate", "name": "is_refund", "instructions": "Does the customer want money back?"}
    listed = {
        "request": {"model": "gpt-decide", "input": "I was charged twice.", "questions": [predicate]},
        "response": {
            "model": "gpt-decide-1",
            "answers": [{"type": "predicate", "name": "is_refund", "probability": 0.93}],
        },
        "id": "t-1",
    }
    criteria = {"billing": "Payments", "other": None}
    choice = {"type": "choice", "instructions": "Which team should answer?", "criteria": criteria}
    answer = {"type": "choice", "choice": "billing", "probabilities": {"billing": 0.8, "other": 0.2}}
    keyed = {
        "request": {"model": "jev-latest", "state": "I was charged twice.", "questions": {"queue": choice}},
        "response": {"model": "jev-2", "answers": {"queue": answer}},
        "id": "t-2",
    }
    return {
        JSON: {"/v1/decisions": listed, "several, /v1/systemone": {"decisions": [keyed], "tag": "mail"}},
        NDJSON: {
            "two": b"".join(orjson.dumps({**pair, "id": f"{pair['id']}b"}) + b"\n" for pair in (listed, keyed)).decode()
        },
    }
