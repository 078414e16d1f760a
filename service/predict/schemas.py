"""The documented bodies of POST /predict; those of answers are the types of what is sent."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from service.http import documentation
from service.http.documentation import BINARY, Schema, body_of, list_of, object_of
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.models.engine import Engine
from service.predict.options import MAX_TAG, PREDICTION_ID, Options
from service.predict.request_body import FORMATS, MULTIPART
from trueodds.bundle import Decision
from trueodds.inputs import KINDS, Format


class Top(TypedDict):
    label: str
    index: int
    probability: float


class Positive(TypedDict):
    label: str
    probability: float


class Truncated(TypedDict):
    tokens: Annotated[int, Field(description="of the whole text")]
    read: Annotated[int, Field(description="those that the model read")]


class _Answer(TypedDict):
    id: Annotated[str, Field(description="send it to /feedback with the true label, whenever that is known")]
    label: Annotated[
        str | None,
        Field(description="the most probable class; of equals the one with the smallest index; null: abstained"),
    ]
    index: int | None
    confidence: Annotated[float, Field(description="its calibrated probability")]


class Prediction(_Answer, total=False):
    """The answer for one input, with what the options ask for."""

    probabilities: Annotated[
        list[float], Field(description="one for each class, in the order of the classes; exact to the last bit")
    ]
    top: Annotated[list[Top], Field(description="with top_k, in place of probabilities")]
    positive: Annotated[Positive, Field(description="of a model with a positive class: that class and its probability")]
    logits: Annotated[list[float], Field(description="with logits: each minus their maximum")]
    abstained: Annotated[bool, Field(description="with abstain_below: whether the confidence was below it")]
    decision: Annotated[
        Decision,
        Field(description="of a version with a promise to act alone: use the answer as it is, or ask a person"),
    ]
    audit: Annotated[
        bool, Field(description="with act, where acting answers are audited: send the true label of this one (true)")
    ]
    truncated: Annotated[Truncated, Field(description="of a text longer than the model reads")]
    repeated: Annotated[bool, Field(description="this id was answered before: this is the stored answer")]
    version: Annotated[str, Field(description="of a repeated answer: who had given it")]


class _Reading(TypedDict):
    below: float
    reading: Annotated[str, Field(description="the numbers in words")]


class Abstention(_Reading, total=False):
    """The meaning of answering only from a confidence on: on held-out rows, from the model's card."""

    measured_at: Annotated[float, Field(description="the nearest threshold not above `below` that was measured")]
    split: Annotated[str, Field(description="of which rows these numbers are")]
    rows: int
    coverage: Annotated[float, Field(description="share of the rows that are answered")]
    risk: Annotated[float | None, Field(description="share of those that are wrong; null where none is answered")]
    risk_lower: Annotated[float, Field(description="exact binomial (Clopper-Pearson) interval of the risk")]
    risk_upper: float
    level: Annotated[float, Field(description="nominal coverage of that interval")]


class _Answers(TypedDict):
    request_id: str
    model: str
    version: str
    predictions: list[Prediction]


@with_config(
    ConfigDict(
        json_schema_extra={
            "example": {
                "request_id": "b1946ac9",
                "model": "digits",
                "version": "3f2a9c01d4e5",
                "predictions": [
                    {
                        "id": "0193a5c1e2f40f9c2a7be1d05c8e66aa13f0",
                        "label": "3",
                        "index": 3,
                        "confidence": 0.91,
                        "probabilities": [0.01, 0.03, 0.05, 0.91],
                    }
                ],
            }
        }
    )
)
class Predictions(_Answers, total=False):
    """Answers in the order of the instances. Each one was stored before it was sent."""

    columns: Annotated[
        dict[str, str],
        Field(description="of CSV: columns that are written in another way than the model's, by its names"),
    ]
    classes: Annotated[list[str], Field(description="with classes: of the version that answers")]
    abstention: Annotated[Abstention, Field(description="with abstain_below")]


def _described(form: Format) -> str:
    """What a body of a format is, for each kind that takes it."""
    return "; ".join(f"{kind.noun}s: {kind.formats[form]}" for kind in KINDS if form in kind.formats)


OWN_ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID}
BODY = body_of(
    {
        JSON: object_of(
            {
                "instances": list_of({"oneOf": [schema for kind in KINDS for schema in kind.schemas]}, minItems=1),
                "ids": list_of(
                    OWN_ID, description="your own ids, unique for each model; sent again they get the stored answer"
                ),
                "tags": list_of({"type": ["string", "null"], "maxLength": MAX_TAG}),
                "propensities": list_of(
                    {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
                    description="the chance that an answer gets a label, where that is known",
                ),
            },
            ["instances"],
        ),
        MULTIPART: object_of({"files": list_of(BINARY, minItems=1)}, ["files"], is_open=True),
        **{media_type: {**BINARY, "description": _described(form)} for media_type, form in FORMATS.items()},
    }
)


def _parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """A pydantic model as parameters of a query."""
    parameters: list[dict[str, Any]] = []
    for name, schema in model.model_json_schema()["properties"].items():
        kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
        if "anyOf" in kept:  # a parameter that may be left out is not one that may be null
            kept = {**kept.pop("anyOf")[0], **kept}
        parameters.append({"name": name, "in": "query", "required": False, "schema": kept})
        parameters[-1]["description"] = schema.get("description", "")
    return parameters


PARAMETERS = [
    *_parameters(Options),
    {
        "name": PREDICTION_ID,
        "in": "header",
        "required": False,
        "schema": OWN_ID,
        "description": "your own id of the one input of this call, in UTF-8; not with ids in the body",
    },
]


def examples(engine: Engine) -> documentation.Examples:
    """Return bodies that the engine answers: a made-up input, in each form in which it is small."""
    return {JSON: {name: {"instances": [instance]} for name, instance in engine.input.examples().items()}}
