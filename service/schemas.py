"""What the API takes and gives, for its documentation and for the report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.ids import MAX_ID

VERSION = "0.1.0"

ID = "0193a5c1e2f40f9c2a7be1d05c8e66aa13f0"
PREDICTION: dict[str, Any] = {
    "id": ID,
    "label": "3",
    "index": 3,
    "confidence": 0.91,
    "probabilities": [0.01, 0.03, 0.05, 0.91],
}


class Top(BaseModel):
    label: str
    index: int
    probability: float


class Prediction(BaseModel):
    """What was not asked for is left out."""

    id: str = Field(description="send it to /feedback with the true label, whenever that is known")
    label: str | None = Field(
        description="the most probable class; of equals the one with the smallest index; null: abstained"
    )
    index: int | None
    confidence: float = Field(description="its calibrated probability")
    probabilities: list[float] = Field(
        default_factory=list, description="one for each class, in the order of the classes; exact to the last bit"
    )
    top: list[Top] = Field(default_factory=list, description="with top_k, in place of probabilities")
    logits: list[float] = Field(default_factory=list, description="with logits: each minus their maximum")
    abstained: bool = Field(False, description="with abstain_below: whether the confidence was below it")
    repeated: bool = Field(False, description="this id was answered before: this is the stored answer")
    version: str | None = Field(None, description="of a repeated answer: who had given it")


class Abstention(BaseModel):
    """What answering only from a confidence on meant on held-out rows, from the model's card."""

    below: float
    reading: str = Field(description="the numbers in words")
    measured_at: float | None = Field(None, description="the nearest threshold not above `below` that was measured")
    split: str | None = Field(None, description="of which rows these numbers are")
    rows: int | None = None
    coverage: float | None = Field(None, description="share of the rows that are answered")
    risk: float | None = Field(None, description="share of those that are wrong; null where none is answered")
    risk_lower: float | None = Field(None, description="exact binomial (Clopper-Pearson) interval of the risk")
    risk_upper: float | None = None
    level: float | None = Field(None, description="nominal coverage of that interval")


class Predictions(BaseModel):
    """Answers in the order of the instances. Each one was stored before it was sent."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "request_id": "b1946ac9",
                "model": "digits",
                "version": "3f2a9c01d4e5",
                "predictions": [PREDICTION],
            }
        }
    )

    request_id: str
    model: str
    version: str
    predictions: list[Prediction]
    abstention: Abstention | None = Field(None, description="with abstain_below")


class LabelsStored(BaseModel):
    """The four counts add up to the number of labels sent."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"stored": 2, "already_known": 1, "corrected": 0, "held": 0}}
    )

    stored: int
    already_known: int = Field(description="the same label again: counted once")
    corrected: int = Field(description='replaced by a different label, with `"correct": true`')
    held: int = Field(description="for an id of your own whose prediction has not come yet")


class BadRow(BaseModel):
    row: int = Field(description="position in the call, from 0; of CSV as a spreadsheet counts, the header being row 1")
    id: str | None
    code: str
    message: str


class BulkReport(LabelsStored):
    """What became of the rows of a CSV or JSON-lines body; the counts add up to `rows`."""

    rows: int
    failed: int
    problems: list[BadRow] = Field(description="the first 20 that failed")


class ErrorDetail(BaseModel):
    model_config = ConfigDict(extra="allow")

    code: str
    message: str = Field(description="what was given, what is allowed, and the cure")
    problems: list[BadRow] | None = Field(None, description="/feedback only: the first 20 bad rows")
    problem_count: int | None = None


class Error(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "error": {
                    "code": "unknown_id",
                    "message": "no prediction has the id 'x'; send an id that /predict answered",
                }
            }
        }
    )

    error: ErrorDetail


class Health(BaseModel):
    status: Literal["live", "ready"]
    model: str | None = None
    version: str | None = None


class PublishedVersion(BaseModel):
    version: str
    state: Literal["loaded", "altered", "refused", "published"] = Field(
        description="altered: loaded and answering, but its files have changed since, and a restart would refuse it;"
        " published: loaded when it is asked for"
    )
    meant_as: list[Literal["default", "shadow"]]
    reason: str | None = Field(description="why it is refused, or how its files differ")


class PublishedModel(BaseModel):
    model: str
    default: str | None = Field(description="the version that answers now")
    shadow: str | None = Field(description="the version that is scored on the same inputs, without being answered")
    versions: list[PublishedVersion]


class Answering(BaseModel):
    model: str
    version: str


class Models(BaseModel):
    default: Answering | None = Field(description="who answers when nothing is named")
    folder: str | None = Field(description="id of the model directory, from its file .id: tells it from any other")
    models: list[PublishedModel]
    problems: list[str] = Field(description="names that lead nowhere, and bundles that are refused or altered")


class WebhookTest(BaseModel):
    webhook: str = Field(description="scheme, host and port of its URL; the rest may be a secret")
    taken: bool = Field(description="whether it has answered 2xx")
    problem: str | None
    flow_run: str | None = Field(description="id of the Prefect flow run that it has started")


class AlarmTest(BaseModel):
    webhooks: list[WebhookTest]


KEYS = {"_401": "no key, or an unknown one", "_403": "another role's key"}
"""For `errors`, of a route that needs a key."""


def errors(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """`_404="..."`: documented error answers."""
    return {int(code[1:]): {"model": Error, "description": text} for code, text in descriptions.items()}


def content(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    return {"schema": schema, "examples": {name: {"value": value} for name, value in examples.items()}}


_ROW = {
    "type": "object",
    "required": ["id", "label"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
        "label": {"oneOf": [{"type": "string"}, {"type": "integer"}], "description": "a class by name, or by index"},
        "correct": {"type": "boolean", "default": False, "description": "replace a different label"},
        "model": {
            "type": "string",
            "description": "of an own id that has not been predicted yet, or that two models know",
        },
    },
}

FEEDBACK_BODY = {
    "required": True,
    "content": {
        "application/json": content(
            {
                "oneOf": [
                    _ROW,
                    {
                        "type": "object",
                        "required": ["labels"],
                        "additionalProperties": False,
                        "properties": {
                            "labels": {"type": "array", "items": _ROW, "minItems": 1},
                            "correct": {
                                "type": "boolean",
                                "default": False,
                                "description": "for all rows without their own",
                            },
                            "model": {"type": "string", "description": "for all rows without their own"},
                        },
                    },
                ]
            },
            {
                "one label": {"id": ID, "label": "3"},
                "several": {"labels": [{"id": ID, "label": "3"}, {"id": ID[::-1], "label": 7}]},
                "a correction": {"id": ID, "label": "5", "correct": True},
            },
        ),
        "text/csv": {
            "schema": {"type": "string"},
            "examples": {"two labels": {"value": f"id,label\n{ID},3\n{ID[::-1]},7\n"}},
        },
        "application/x-ndjson": {
            "schema": {"type": "string"},
            "examples": {"one label": {"value": f'{{"id": "{ID}", "label": "3"}}\n'}},
        },
    },
}
