"""Documented bodies of POST /observe. The answer is validated with the same model."""

from __future__ import annotations

import csv
import io
from typing import Any

import orjson
from pydantic import BaseModel, Field

from service.bulk.lines import CSV, NDJSON
from service.bulk.report import BulkReport
from service.http import documentation
from service.http.documentation import BINARY, TEXT, body_of, list_of, object_of
from service.http.error_answers import BadRow, bad_rows
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.observe.cloud_event import KINDS, STRUCTURED
from service.observe.observation import ALLOWED, Form
from service.observe.parquet import PARQUET
from service.predict.options import MAX_TAG
from trueodds.bundle import Decision
from trueodds.bundle.act_alone import EXAMPLE
from trueodds.inputs.sources import LOGPROBS_READING, SOURCES, VERBALISED_READING, VOTES_READING


class ObservedDecision(BaseModel):
    """Decision on one row of a version with a promise to act alone."""

    id: str
    decision: Decision
    audit: bool | None = Field(
        None,
        description="With decision `act`, if answers are audited: whether the true label of this row is requested.",
        exclude_if=lambda value: value is None,
    )


class ObservationSummary(BaseModel):
    """Outcomes of the rows. The counts add up to `rows`."""

    rows: int
    stored: int
    already_known: int = Field(description="The same observation was stored already. It counts once.")
    failed: int
    problems: list[BadRow] = Field(description="The first 20 rows that failed.")
    read_as: list[str] = Field(
        default_factory=list,
        description="How log-probabilities, verbalised numbers, votes and rounded probabilities were read.",
        exclude_if=lambda value: not value,
    )
    low_label_mass: int = Field(
        0,
        description="Rows of log-probabilities with less than half of the probability on the classes: the prompt does"
        " not fit them.",
        exclude_if=lambda value: not value,
    )
    decisions: list[ObservedDecision] = Field(
        default_factory=list,
        description="For a JSON body: one decision per row of a version with a promise to act alone.",
        exclude_if=lambda value: not value,
    )

    @classmethod
    def of(cls, report: BulkReport) -> ObservationSummary:
        """Return the summary of a report on rows."""
        counts = {name: report.outcomes[name] for name in ("stored", "already_known", "failed")}
        return cls(rows=report.rows, **counts, problems=bad_rows(report.refusals))


RESOLUTION = (
    "Step of rounded probabilities, such as 0.01, or exact. A version keeps the first one. Without it, the"
    " service infers the step from the first call with rows that do not sum to 1; until then probabilities are exact."
)
SET_LEVEL = (
    "Level of the rows' conformal sets (`set`), such as 0.9. Give it with the version's first"
    " answer. The report then has their coverage, and an alarm watches it."
)
SET_ROWS = (
    "Number of calibration rows of these sets. The alarm then allows for their chance. Without it, a coverage below"
    " the level fires it."
)
READINGS: dict[Form, str] = {
    "logprobs": LOGPROBS_READING,
    "verbalised": VERBALISED_READING,
    "votes": VOTES_READING,
}
"""Sentences on how the numbers of chat models are read."""

_NUMBERS: dict[str, Any] = {
    "oneOf": [
        list_of({"type": "number"}, minItems=2),
        {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 2},
    ]
}
_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_ID, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}
_TAG = {"type": "string", "minLength": 1, "maxLength": MAX_TAG}
_CLASS = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_KEYS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID, "description": "Your own id, for /feedback."},
    "probabilities": {**_NUMBERS, "description": "Probabilities in the order of the classes, or by class name."},
    "logits": {**_NUMBERS, "description": "Logits in the order of the classes, or by class name."},
    "logprobs": {
        "oneOf": [
            {"type": "object"},
            list_of(object_of({"token": TEXT, "logprob": {"type": "number"}}, ["token", "logprob"]), minItems=1),
        ],
        "description": "Log-probabilities of a chat model: `top_logprobs` of the token that answers, or by token.",
    },
    "verbalised": {
        "oneOf": [TEXT, *_NUMBERS["oneOf"], {"type": "number", "minimum": 0, "maximum": 100}],
        "description": "Number that a chat model wrote for the predicted class, such as 0.85, 85 or '85%'; or one per"
        " class.",
    },
    "votes": {
        "oneOf": [*_NUMBERS["oneOf"], list_of(TEXT, minItems=1)],
        "description": "Answers of repeated samples: counts by class name or in order, or the names that were sampled.",
    },
    "confidence": {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "Confidence of the predicted class, if the other probabilities are unknown.",
    },
    "predicted": {**_CLASS, "description": "Predicted class by name. A whole number is read as a name."},
    "index": {"type": "integer", "minimum": 0, "description": "Instead of predicted: class by its position, from 0."},
    "model": {**_NAME, "description": "Name of the model."},
    "version": {**_NAME, "description": "Its version."},
    "tag": {**_TAG, "description": "Tag, by which reports can be split."},
    "time": {
        "oneOf": [{"type": "string"}, {"type": "number"}],
        "description": "ISO 8601, or Unix time whose size tells its unit. Default: now.",
    },
    "propensity": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "description": "Probability that the answer gets a label, if you know it.",
    },
    "confidence_source": {
        "enum": list(SOURCES),
        "description": "Source of the confidence. Logprobs, verbalised and votes tell it.",
    },
    "set": list_of(_CLASS, uniqueItems=True, description="Classes of the answer's conformal set. It may be empty."),
}
assert tuple(_KEYS) == ALLOWED
_ROW = object_of(_KEYS, ["id"])
_CLASSES = list_of(_CLASS, minItems=2, uniqueItems=True)
_ROWS = object_of(
    {
        "observations": list_of(_ROW, minItems=1, description="Several answers. Each has the keys of a single one."),
        "model": {**_NAME, "description": "Model of rows that name none."},
        "version": {**_NAME, "description": "Version of rows that name none."},
        "classes": {
            "oneOf": [
                _CLASSES,
                object_of({"names": _CLASSES, "ordered": {"type": "boolean"}}, ["names", "ordered"]),
            ],
            "description": "Class names in the order of the lists. With ordered: true, they are levels.",
        },
        "ordered": {"type": "boolean", "description": "The classes are levels, the lowest first."},
        "positive": {**_CLASS, "description": "Positive class of a binary model."},
        "act_alone": {
            "oneOf": [TEXT, {"type": "object"}],
            "description": f"Promise to act alone, such as {EXAMPLE}, or an object with the same keys and `tags`.",
        },
        "tag": {**_TAG, "description": "Tag of rows that name none."},
        "confidence_source": {"enum": list(SOURCES), "description": "Source of rows that name none."},
        "resolution": {"oneOf": [TEXT, {"type": "number"}], "description": RESOLUTION},
        "set_level": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description": SET_LEVEL},
        "set_rows": {"type": "integer", "minimum": 1, "description": SET_ROWS},
        "shadow": {"type": "boolean", "description": "The answers are those of the model's shadow."},
    },
    ["observations"],
)
BODY = body_of({JSON: {"oneOf": [_ROW, _ROWS]}, NDJSON: TEXT, CSV: TEXT, PARQUET: BINARY})
EVENT = body_of(
    {
        STRUCTURED: {"type": "object"},
        JSON: {"type": "object", "description": "Body of the inference. The attributes of the event are headers."},
    }
)
EVENT_HEADERS: list[dict[str, Any]] = [
    {"name": name, "in": "header", "schema": {"type": "string"}, "description": text}
    for name, text in {
        "ce-id": "Id of the inference.",
        "ce-type": " or ".join(KINDS),
        "ce-inferenceservicename": "Name of the model.",
        "ce-time": "Time at which it was sent.",
    }.items()
]


def event_examples() -> documentation.Examples:
    """Return example responses of an InferenceService that does not exist."""
    attributes = {
        "specversion": "1.0",
        "source": "http://localhost:9081/",
        "type": next(kind for kind, half in KINDS.items() if half == "response"),
        "inferenceservicename": "example-v1",
    }
    v1 = {**attributes, "id": "1", "data": {"predictions": [[0.9, 0.1], [0.2, 0.8]]}}
    tensor = {"name": "probabilities", "shape": [1, 2], "datatype": "FP32", "data": [0.3, 0.7]}
    v2 = {**attributes, "inferenceservicename": "example-v2", "id": "2", "data": {"outputs": [tensor]}}
    return {STRUCTURED: {"protocol V1": v1, "protocol V2": v2}}


def examples() -> documentation.Examples:
    """Return example answers of a model that does not exist."""
    whose = {"model": "example", "version": "1"}
    by_name = {"id": "a-1", "probabilities": {"ham": 0.9, "spam": 0.1}, **whose}
    lists = [
        {"id": "a-2", "probabilities": [0.2, 0.8]},
        {"id": "a-3", "probabilities": [0.6, 0.4], "tag": "newsletter"},
    ]
    top = {"id": "b-1", "confidence": 0.7, "predicted": "spam", "model": "example", "version": "2"}
    chat = [
        {"id": "c-1", "logprobs": {"spam": -0.1, "ham": -2.6}},
        {"id": "c-2", "votes": {"ham": 4, "spam": 1}},
    ]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(
        [("id", "model", "version", "ham", "spam"), ("a-4", "example", "1", 0.3, 0.7)]
    )
    return {
        JSON: {
            "probabilities by name": by_name,
            "a chat model": {"observations": chat, **whose, "version": "chat", "classes": ["ham", "spam"]},
            "several": {"observations": lists, **whose, "classes": ["ham", "spam"]},
            "only the predicted class": {"observations": [top], "classes": ["ham", "spam"]},
        },
        NDJSON: {"one": (orjson.dumps({**by_name, "id": "a-5"}) + b"\n").decode()},
        CSV: {"one": table.getvalue()},
    }
