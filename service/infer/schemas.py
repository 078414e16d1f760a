"""The documented bodies of the Open Inference Protocol; those of answers are the types of what is sent."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from service.http import documentation
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.infer.request_parameters import MAX_SEQUENCE_ID
from service.infer.tensors import BYTES, DTYPES
from service.models.engine import Engine
from service.predict.options import MAX_TAG
from service.predict.request_body import RAW
from trueodds.inputs import KINDS, Input
from trueodds.inputs.kind import SMALL
from trueodds.texts import with_article

OUTPUTS = ("prediction_id", "label", "probabilities", "logits")


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
    classes: list[str] = Field(description="in the order of the probabilities")


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: list[int] = Field(description="-1: any number of rows")
    parameters: Input | ClassNames | None = Field(
        None,
        description="of the input: what the model's card says of it; of the label: the names of the classes",
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
    data: NotRequired[Annotated[list[Any], Field(description="flat, row by row; in binary after the JSON if asked")]]
    parameters: NotRequired[Annotated[dict[str, int], Field(description="binary_data_size")]]


Said = Annotated[dict[str, list[dict[str, int]]], Field(description="truncated: texts longer than the model reads")]


class RequestId(TypedDict, total=False):
    id: Annotated[str, Field(description="of the request, if it had one")]


class InferResponse(RequestId):
    """The tensors of the outputs, in the order in which they were named."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    parameters: NotRequired[Said]


BODY = {
    "required": True,
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "required": ["inputs"],
                "additionalProperties": False,
                "properties": {
                    "id": {"type": "string"},
                    "parameters": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "prediction_id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
                            "tag": {"type": "string", "minLength": 1, "maxLength": MAX_TAG},
                            "propensity": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                            "binary_data_output": {"type": "boolean"},
                            "timeout": {
                                "type": "integer",
                                "minimum": 0,
                                "description": "microseconds that the answer may take; 0: no limit of the caller's own",
                            },
                            "priority": {"type": "integer", "minimum": 0, "description": "changes nothing"},
                            "sequence_id": {
                                "oneOf": [
                                    {"type": "integer", "minimum": 0},
                                    {"type": "string", "maxLength": MAX_SEQUENCE_ID},
                                ],
                                "description": "changes nothing: no model keeps a state",
                            },
                            "sequence_start": {"type": "boolean", "description": "changes nothing"},
                            "sequence_end": {"type": "boolean", "description": "changes nothing"},
                        },
                    },
                    "inputs": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["name", "shape", "datatype"],
                            "properties": {
                                "name": {"enum": [kind.tensor for kind in KINDS]},
                                "shape": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                                "datatype": {"enum": [*DTYPES, BYTES]},
                                "parameters": {"type": "object", "description": "binary_data_size"},
                                "data": {"type": "array", "description": "flat or nested, row by row"},
                            },
                        },
                    },
                    "outputs": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"enum": list(OUTPUTS)},
                                "parameters": {"type": "object", "description": "binary_data"},
                            },
                        },
                    },
                },
            }
        },
        RAW: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "the same JSON without data, of Inference-Header-Content-Length bytes, then the tensor",
            }
        },
    },
}


def examples(engine: Engine) -> documentation.Examples:
    """Return bodies that the engine answers: a made-up input, if it is small."""
    kind = engine.input
    values = kind.made_up()
    if len(values) > SMALL:
        return {}
    tensor = {"name": kind.tensor, "shape": [1, *kind.tensor_shape], "datatype": kind.datatype}
    return {JSON: {with_article(kind.noun): {"inputs": [{**tensor, "data": values}]}}}
