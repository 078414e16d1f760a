"""Documented bodies of POST /predict. The answers are typed with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from service.http import documentation
from service.http.documentation import BINARY, Schema, body_of, list_of, object_of
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.predict.options import MAX_TAG, PREDICTION_ID, PredictOptions
from service.predict.request_body import FORMATS, IMAGE, MULTIPART
from trueodds.bundle import Decision
from trueodds.inputs import KINDS, Format, InputKind
from trueodds.processes.choices import SetMethod


class Top(TypedDict):
    label: str
    index: int
    probability: float


class Positive(TypedDict):
    label: str
    probability: float


class Truncated(TypedDict):
    tokens: Annotated[int, Field(description="Tokens of the whole text.")]
    read: Annotated[int, Field(description="Tokens that the model has read.")]


class _Answer(TypedDict):
    id: Annotated[str, Field(description="Send it to /feedback with the true label, as soon as you know that label.")]
    label: Annotated[
        str | None,
        Field(description="Most probable class. Ties are broken by the smallest index. Null if the model abstains."),
    ]
    index: int | None
    confidence: Annotated[float, Field(description="Calibrated probability of the label.")]


class Prediction(_Answer, total=False):
    """Answer for one input, with the parts that the options select."""

    probabilities: Annotated[
        list[float], Field(description="One per class, in the order of the classes; exact to the last bit.")
    ]
    top: Annotated[list[Top], Field(description="With top_k, instead of probabilities.")]
    positive: Annotated[Positive, Field(description="Positive class of the model, if it has one, and its probability.")]
    logits: Annotated[list[float], Field(description="With logits=true: each minus their maximum.")]
    abstained: Annotated[bool, Field(description="With abstain_below: whether the confidence was below it.")]
    decision: Annotated[
        Decision,
        Field(
            description="For a version with a promise to act alone: use the answer (act), or ask a person (escalate)."
        ),
    ]
    audit: Annotated[
        bool,
        Field(description="With decision `act`, if answers are audited: whether you should send the true label."),
    ]
    set: Annotated[
        list[str] | None,
        Field(
            description="With set: classes of the set, the most probable first; may be empty. Null for a repeated"
            " answer of a version without sets of this level."
        ),
    ]
    group: Annotated[
        str | None,
        Field(
            description="For a version with a calibrator by group: the tag whose temperature the probabilities have."
            " Null: without a tag, or with an unknown one, they have that of all answers."
        ),
    ]
    truncated: Annotated[Truncated, Field(description="Present if the text is longer than the model reads.")]
    repeated: Annotated[bool, Field(description="This id was answered before, and this is the stored answer.")]
    version: Annotated[str, Field(description="Version that gave a repeated answer.")]


class _Reading(TypedDict):
    below: float
    reading: Annotated[str, Field(description="The numbers in words.")]


class Abstention(_Reading, total=False):
    """Effect of abstaining below a confidence, measured on held-out rows. It comes from the model's card."""

    measured_at: Annotated[float, Field(description="Nearest measured threshold that is not above `below`.")]
    split: Annotated[str, Field(description="Split on which these numbers were measured.")]
    rows: int
    coverage: Annotated[float, Field(description="Share of the rows that are answered.")]
    risk: Annotated[
        float | None, Field(description="Share of the answered rows that are wrong; null if there are none.")
    ]
    risk_lower: Annotated[float, Field(description="Lower end of the exact binomial (Clopper-Pearson) interval.")]
    risk_upper: float
    level: Annotated[float, Field(description="Confidence level of that interval.")]


class Sets(TypedDict):
    """Promise of the sets of an answer."""

    level: Annotated[float, Field(description="Probability with which a set holds the true class.")]
    method: SetMethod
    calibration_rows: Annotated[int, Field(description="Labelled rows that gave the thresholds.")]
    floor: Annotated[
        float,
        Field(description="Coverage that sound sets of so many calibration rows reach in 95% of calibrations."),
    ]
    test_coverage: Annotated[
        float | None, Field(description="Coverage of the test rows at this level; null if the card has none.")
    ]
    reading: Annotated[str, Field(description="The promise in words.")]


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
    """Answers in the order of the instances. Each was stored before it was sent."""

    columns: Annotated[
        dict[str, str],
        Field(description="Columns or names that are spelled differently from the model's features, by feature name."),
    ]
    classes: Annotated[list[str], Field(description="With classes=true: class names of the version that answers.")]
    abstention: Annotated[Abstention, Field(description="With abstain_below.")]
    sets: Annotated[Sets, Field(description="With set.")]


class _LabelAnswer(TypedDict):
    type: Literal["predicate"]
    name: Annotated[str, Field(description="Name of the question: send it to /feedback as `question`.")]
    probability: Annotated[float, Field(description="Calibrated probability that the label is true.")]


@with_config(ConfigDict(title="LabelAnswer"))
class LabelAnswer(_LabelAnswer, total=False):
    """Answer to the question of one label, as a decision model answers a predicate."""

    version: Annotated[
        str,
        Field(description="Version that gave this answer. Present if several versions gave the answers of the input."),
    ]


class _LabelPrediction(TypedDict):
    id: Annotated[str, Field(description="Send it to /feedback with each truth, as soon as you know it.")]
    answers: Annotated[list[LabelAnswer], Field(description="One per label, in the order of the labels.")]


class LabelPrediction(_LabelPrediction, total=False):
    """Answers for one input."""

    repeated: Annotated[
        bool,
        Field(
            description="This id was answered before, and these are the stored answers. A label that a later version"
            " has added is answered now."
        ),
    ]
    version: Annotated[
        str, Field(description="Version that gave repeated answers. If there are several, each answer has its own.")
    ]
    truncated: Annotated[dict[str, int], Field(description="Present if the text is longer than the model reads.")]


class _LabelPredictions(TypedDict):
    request_id: str
    model: str
    version: str
    predictions: list[LabelPrediction]


@with_config(ConfigDict(title="LabelPredictions"))
class LabelPredictions(_LabelPredictions, total=False):
    """Answers of a model of independent labels, in the order of the instances. Each was stored before it was sent."""

    columns: Annotated[
        dict[str, str],
        Field(description="Columns or names that are spelled differently from the model's features, by feature name."),
    ]
    classes: Annotated[list[str], Field(description="With classes=true: the labels of the version that answers.")]


def _describe(form: Format) -> str:
    """Describe a body of a format, for each kind of input that accepts it."""
    return "; ".join(f"{kind.noun}s: {kind.formats[form]}" for kind in KINDS if form in kind.formats)


OWN_ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID}
BODY = body_of(
    {
        JSON: object_of(
            {
                "instances": list_of(
                    {"oneOf": [schema for kind in KINDS for schema in kind.schemas]},
                    minItems=1,
                    description="Inputs of the model's kind.",
                ),
                "ids": list_of(
                    OWN_ID,
                    description="Your own ids, unique within a model. The same id returns the stored answer, also that"
                    " of an earlier version: `repeated` and `version` say so.",
                ),
                "tags": list_of(
                    {"type": ["string", "null"], "maxLength": MAX_TAG},
                    description="Tags, by which reports can be split.",
                ),
                "propensities": list_of(
                    {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
                    description="Probabilities that the answers get a label, if you know them.",
                ),
            },
            ["instances"],
        ),
        MULTIPART: object_of({"files": list_of(BINARY, minItems=1)}, ["files"], is_open=True),
        IMAGE: {**BINARY, "description": f"One file: {'; '.join(kind.files for kind in KINDS if kind.files)}."},
        **{media_type: {**BINARY, "description": _describe(form)} for media_type, form in FORMATS.items()},
    }
)


def _parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the fields of a pydantic model as query parameters of OpenAPI."""
    parameters: list[dict[str, Any]] = []
    for name, schema in model.model_json_schema()["properties"].items():
        kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
        if "anyOf" in kept:  # the parameter is optional, but null is not a value
            kept = {**kept.pop("anyOf")[0], **kept}
        parameters.append({"name": name, "in": "query", "required": False, "schema": kept})
        parameters[-1]["description"] = schema.get("description", "")
    return parameters


PARAMETERS = [
    *_parameters(PredictOptions),
    {
        "name": PREDICTION_ID,
        "in": "header",
        "required": False,
        "schema": OWN_ID,
        "description": "Your own id of the single input of this call, in UTF-8. Not together with ids in the body.",
    },
]


def examples(kind: InputKind) -> documentation.Examples:
    """Return example bodies with generated inputs, in each format in which they are small."""
    return {JSON: {name: {"instances": [instance]} for name, instance in kind.examples().items()}}
