"""Documented bodies of the Open Inference Protocol. The answers are typed with them."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from service.http import documentation
from service.http.documentation import BINARY, TEXT, Schema, body_of, list_of, object_of
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.infer.request_parameters import MAX_SEQUENCE_ID
from service.infer.tensors import BYTES, DTYPES
from service.models.engine import Engine
from service.predict.options import MAX_TAG
from service.predict.request_body import RAW
from service.store.rows import Version
from service.telemetry.statistics import Statistics
from trueodds.inputs import KINDS, Input
from trueodds.inputs.kind import SMALL
from trueodds.texts import with_article

DATATYPES = {"prediction_id": "BYTES", "label": "BYTES", "probabilities": "FP64", "logits": "FP32"}
"""Datatypes of the outputs, by name."""
OUTPUTS = tuple(DATATYPES)
CLASSIFIED = OUTPUTS[2:]
"""Outputs that `classification` turns into texts, one for each class."""
DECISION = "decision"
"""Output of versions with a promise to act alone. Its values are `act` and `escalate`."""
SET = "set"
"""Output of versions with conformal sets: whether each class is in the set of a row."""
GROUP = "group"
"""Output of versions with a calibrator by group: the tag whose temperature a row has; empty for that of all rows."""
PER_CLASS = (*CLASSIFIED, SET)
"""Outputs with one value per class."""


def datatypes_of(version: Version) -> dict[str, str]:
    """Return the datatypes of a version's outputs, by name."""
    decision = {} if version.act_alone is None else {DECISION: "BYTES"}
    by_group = {GROUP: "BYTES"} if version.calibrator.known_groups else {}
    return {**DATATYPES, **decision, **by_group, **({SET: "BOOL"} if version.set_rules else {})}


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class Live(BaseModel):
    live: bool


class Ready(BaseModel):
    ready: bool


class ModelReady(BaseModel):
    name: str
    ready: bool


class ClassNames(BaseModel):
    classes: list[str] = Field(description="Class names in the order of the probabilities.")
    multilabel: bool = Field(
        default=False,
        description="The classes are independent labels. Ask such a model with POST /predict.",
        exclude_if=lambda value: not value,
    )


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: list[int] = Field(description="Shape; -1 stands for any number of rows.")
    parameters: Input | ClassNames | None = Field(
        None,
        description="For the input: its entry in the model's card. For the label: the names of the classes.",
        exclude_if=lambda value: value is None,
    )


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputTensor(TypedDict):
    name: str
    datatype: str
    shape: list[int]
    data: NotRequired[Annotated[list[Any], Field(description="Flat, row by row. Binary data follows the JSON.")]]
    parameters: NotRequired[Annotated[dict[str, int], Field(description="Holds binary_data_size.")]]


ResponseParameters = Annotated[
    dict[str, list[dict[str, int]]],
    Field(
        description="truncated: rows whose text is longer than the model reads. audit: rows that act alone and for"
        " which a true label is requested. no_set: repeated answers of a version without such a set."
    ),
]


class RequestId(TypedDict, total=False):
    id: Annotated[str, Field(description="Id of the request, if it has one.")]


class InferResponse(RequestId):
    """Output tensors, in the order of the request."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    parameters: NotRequired[ResponseParameters]


class ConfigTensor(TypedDict):
    name: str
    data_type: str
    dims: Annotated[list[int], Field(description="Shape without the batch axis.")]


class ModelConfig(TypedDict):
    """The fields of Triton's ModelConfig that apply to this service."""

    name: str
    platform: str
    backend: str
    max_batch_size: Annotated[int, Field(description="Largest number of rows in a request.")]
    input: list[ConfigTensor]
    output: list[ConfigTensor]


class Duration(TypedDict):
    count: int
    ns: Annotated[int, Field(description="Total in nanoseconds.")]


class InferenceStatistics(TypedDict):
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Annotated[Duration, Field(description="Counts batches, not requests.")]
    compute_output: Duration
    cache_hit: Duration


class VersionStatistics(TypedDict):
    name: str
    version: str
    last_inference: Annotated[int, Field(description="Unix time in milliseconds; 0 if there was none.")]
    inference_count: Annotated[int, Field(description="Rows that the model has scored, including as a shadow.")]
    execution_count: Annotated[int, Field(description="Batches that the model has scored.")]
    inference_stats: InferenceStatistics
    batch_stats: Annotated[list[Any], Field(description="Always empty.")]


class ModelStatistics(TypedDict):
    """Counts of all workers since the service started. Durations that are not measured have the count 0."""

    model_stats: list[VersionStatistics]


class IndexEntry(TypedDict):
    name: str
    version: str
    state: Annotated[str, Field(description="READY or UNAVAILABLE.")]
    reason: str


def version_statistics(model: str, version: str, statistics: Statistics) -> VersionStatistics:
    """Return the counts of a version in Triton's format."""
    none = _duration(0, 0.0)
    return {
        "name": model,
        "version": version,
        "last_inference": round(1000 * statistics.last_time),
        "inference_count": statistics.rows,
        "execution_count": statistics.batches,
        "inference_stats": {
            "success": _duration(statistics.answers, statistics.answer_seconds),
            "fail": _duration(statistics.failures, statistics.failure_seconds),
            "queue": none,
            "compute_input": none,
            "compute_infer": _duration(statistics.model_batches, statistics.model_seconds),
            "compute_output": none,
            "cache_hit": none,
        },
        "batch_stats": [],
    }


def _duration(count: int, seconds: float) -> Duration:
    return {"count": count, "ns": round(1e9 * seconds)}


_NOTHING = "Has no effect."
_WHOLE: Schema = {"type": "integer", "minimum": 0}
INDEX_BODY = {
    "content": {
        JSON: {"schema": object_of({"ready": {"type": "boolean", "description": "List only loaded versions."}})}
    }
}
_PARAMETERS = object_of(
    {
        "prediction_id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
        "tag": {"type": "string", "minLength": 1, "maxLength": MAX_TAG},
        "propensity": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "set": {
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": "Level of the output set, such as 0.9. The answer then has this output.",
        },
        "binary_data_output": {"type": "boolean"},
        "timeout": {
            **_WHOLE,
            "description": "Time limit of the answer in microseconds. 0: none beyond the service's own.",
        },
        "priority": {**_WHOLE, "description": _NOTHING},
        "sequence_id": {
            "oneOf": [_WHOLE, {"type": "string", "maxLength": MAX_SEQUENCE_ID}],
            "description": f"{_NOTHING} Models keep no state.",
        },
        "sequence_start": {"type": "boolean", "description": _NOTHING},
        "sequence_end": {"type": "boolean", "description": _NOTHING},
    }
)
_INPUT = object_of(
    {
        "name": {"enum": [kind.tensor for kind in KINDS]},
        "shape": list_of({"type": "integer"}, minItems=1),
        "datatype": {"enum": [*DTYPES, BYTES]},
        "parameters": {"type": "object", "description": "Holds binary_data_size."},
        "data": {"type": "array", "description": "Flat or nested, row by row."},
    },
    ["name", "shape", "datatype"],
    is_open=True,
)
_OUTPUT_PARAMETERS = object_of(
    {
        "binary_data": {"type": "boolean"},
        "classification": {
            "type": "integer",
            "minimum": 1,
            "description": f"For {' and '.join(CLASSIFIED)}: return this many classes with the highest values, as texts"
            " value:index:label, instead of the tensor.",
        },
    },
    is_open=True,
)
_OUTPUT = object_of(
    {"name": {"enum": [*OUTPUTS, DECISION, GROUP, SET]}, "parameters": _OUTPUT_PARAMETERS}, ["name"], is_open=True
)
BODY = body_of(
    {
        JSON: object_of(
            {
                "id": {**TEXT, "description": "Id of the request, which the answer repeats."},
                "parameters": {**_PARAMETERS, "description": "Parameters of all rows."},
                "inputs": list_of(_INPUT, minItems=1, maxItems=1, description="The one input tensor."),
                "outputs": list_of(
                    _OUTPUT,
                    description="Requested outputs. Default: prediction_id, label, probabilities, any decision, any"
                    " group, and set with the parameter set.",
                ),
            },
            ["inputs"],
        ),
        RAW: {
            **BINARY,
            "description": "The same JSON without data, Inference-Header-Content-Length bytes long, then the tensor.",
        },
    }
)


def examples(engine: Engine) -> documentation.Examples:
    """Return example bodies with a generated input, or none if the input is large."""
    kind = engine.input
    values = kind.made_up()
    if len(values) > SMALL:
        return {}
    tensor = {"name": kind.tensor, "shape": [1, *kind.tensor_shape], "datatype": kind.datatype}
    return {JSON: {with_article(kind.noun): {"inputs": [{**tensor, "data": values}]}}}
