"""What the API takes and gives, for its documentation and for the report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ID = "0193a5c1e2f40f9c2a7be1d05c8e66aa13f0"
PREDICTION: dict[str, Any] = {
    "id": ID,
    "label": "3",
    "index": 3,
    "confidence": 0.91,
    "probabilities": [0.01, 0.03, 0.05, 0.91],
}


class Prediction(BaseModel):
    id: str = Field(description="send it to /feedback with the true label, whenever that is known")
    label: str = Field(description="the most probable class; of equals the one with the smallest index")
    index: int
    confidence: float = Field(description="its calibrated probability")
    probabilities: list[float] = Field(
        description="one for each class, in the order of the classes; exact to the last bit"
    )


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
    row: int = Field(description="position in the call, from 0")
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


def errors(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """Documented answers with an error body: `errors(_404="no such ...")`."""
    return {int(code[1:]): {"model": Error, "description": text} for code, text in descriptions.items()}


class Health(BaseModel):
    status: Literal["live", "ready"]
    model: str | None = None
    version: str | None = None


class Bin(BaseModel):
    """Labelled answers with a confidence in (lo, hi]; means are null in an empty bin."""

    lo: float
    hi: float
    count: int
    mean_confidence: float | None
    accuracy: float | None
    accuracy_lower: float | None = Field(description="exact binomial (Clopper-Pearson) interval of the accuracy")
    accuracy_upper: float | None
    gap: float | None = Field(description="accuracy - mean confidence; negative: over-confident")


class WorstBin(BaseModel):
    """Where the MCE comes from; with a small count it says little."""

    lo: float
    hi: float
    count: int


Verdict = Literal["no_answers", "no_labels", "cannot_tell", "over_confident", "under_confident", "uneven"]


class Report(BaseModel):
    """How well the confidences of one model version agree with the labels that came back; null without labels."""

    model: str
    version: str
    verdict: Verdict
    reading: str = Field(description="what the numbers mean, in plain words")
    headline: str = Field(description="the reading's first part: what was found")
    cautions: list[str] = Field(description="the reading's second part: what to keep in mind")
    answers: int
    labelled: int
    coverage: float | None = Field(description="labelled / answers")
    error: float | None = Field(None, description="1 - accuracy")
    accuracy: float | None = None
    mean_confidence: float | None = None
    signed_gap: float | None = Field(None, description="accuracy - mean confidence; negative: over-confident")
    level: float = Field(description="nominal coverage of the intervals")
    ece: float | None = Field(
        None, description="expected calibration error, plug-in: mean |accuracy - confidence| over bins"
    )
    ece_estimate: float | None = Field(None, description="median-unbiased estimate of the ECE")
    ece_lower: float | None = None
    ece_upper: float | None = None
    floor_mean: float | None = Field(None, description="mean ECE of a perfectly calibrated model on as many answers")
    floor_p95: float | None = Field(None, description="its 95th percentile")
    mce: float | None = Field(None, description="the largest |accuracy - mean confidence| of a bin")
    mce_bin: WorstBin | None = None
    nll: float | None = Field(None, description="negative log-likelihood, nats")
    brier: float | None = Field(None, description="Brier score over all classes, 0 to 2")
    bins: list[Bin]
    offline: dict[str, Any] = Field(description="the same numbers on the test set, from the model's card")


def _content(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    return {"schema": schema, "examples": {name: {"value": value} for name, value in examples.items()}}


PREDICT_BODY = {
    "required": True,
    "content": {
        "application/json": _content(
            {
                "type": "object",
                "required": ["instances"],
                "additionalProperties": False,
                "properties": {
                    "instances": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "oneOf": [
                                {
                                    "type": "array",
                                    "items": {"type": "array"},
                                    "description": "rows x columns x channels of whole numbers 0..255",
                                },
                                {
                                    "type": "object",
                                    "required": ["b64"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "b64": {"type": "string", "format": "byte", "description": "PNG or JPEG"}
                                    },
                                },
                            ]
                        },
                    }
                },
            },
            {
                "a picture": {"instances": [{"b64": "iVBORw0KGgo..."}]},
                "pixels of a 2 x 2 grey image": {"instances": [[[0, 255], [128, 7]]]},
            },
        ),
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["files"],
                "properties": {
                    "files": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
                },
            }
        },
    },
}

_ROW = {
    "type": "object",
    "required": ["id", "label"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "maxLength": 128},
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
        "application/json": _content(
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
