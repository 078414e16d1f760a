"""What /predict and the Open Inference Protocol take, and what the protocol gives, for the documentation."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from service.ids import MAX_ID
from service.infer.request_parameters import MAX_SEQUENCE_ID
from service.infer.tensors import DTYPES
from service.predict.options import MAX_TAG, PREDICTION_ID, Options
from service.schemas import content

PREDICT_BODY = {
    "required": True,
    "content": {
        "application/json": content(
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
                                {
                                    "type": "object",
                                    "required": ["pixels_b64"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "pixels_b64": {
                                            "type": "string",
                                            "format": "byte",
                                            "description": "one byte a value, rows x columns x channels",
                                        }
                                    },
                                },
                            ]
                        },
                    },
                    "ids": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
                        "description": "your own ids, unique for each model; sent again they get the stored answer",
                    },
                    "tags": {"type": "array", "items": {"type": ["string", "null"], "maxLength": MAX_TAG}},
                    "propensities": {
                        "type": "array",
                        "items": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
                        "description": "the chance that an answer gets a label, where that is known",
                    },
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
        "application/x-npy": {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "N x rows x columns x channels; numbers of any type, as long as they are 0..255",
            }
        },
        "application/octet-stream": {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "one byte a value, whole images one after the other",
            }
        },
    },
}


def _parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """A pydantic model as parameters of a query."""
    found: list[dict[str, Any]] = []
    for name, schema in model.model_json_schema()["properties"].items():
        kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
        if "anyOf" in kept:  # a parameter that may be left out is not one that may be null
            kept = {**kept.pop("anyOf")[0], **kept}
        found.append({"name": name, "in": "query", "required": False, "schema": kept})
        found[-1]["description"] = schema.get("description", "")
    return found


PREDICT_PARAMETERS = [
    *_parameters(Options),
    {
        "name": PREDICTION_ID,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
        "description": "your own id of the one image of this call, in UTF-8; not with ids in the body",
    },
]


class ProtocolError(BaseModel):
    error: str


def protocol_errors(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """`_404="..."`: documented error answers of the protocol."""
    return {int(code[1:]): {"model": ProtocolError, "description": text} for code, text in descriptions.items()}


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


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: list[int] = Field(description="-1: any number of images")


class ModelMetadata(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputTensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any] = Field(default_factory=list, description="flat, row by row; in binary after the JSON if asked")
    parameters: dict[str, Any] = Field(default_factory=dict, description="binary_data_size")


class InferResponse(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_name: str
    model_version: str
    id: str | None = Field(None, description="of the request, if it had one")
    outputs: list[OutputTensor]


INFER_BODY = {
    "required": True,
    "content": {
        "application/json": content(
            {
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
                                "name": {"const": "images"},
                                "shape": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4},
                                "datatype": {"enum": list(DTYPES), "description": "whole numbers 0..255 in each"},
                                "parameters": {"type": "object", "description": "binary_data_size"},
                                "data": {"type": "array", "description": "flat or nested, row by row; 0..255"},
                            },
                        },
                    },
                    "outputs": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"enum": ["prediction_id", "label", "probabilities", "logits"]},
                                "parameters": {"type": "object", "description": "binary_data"},
                            },
                        },
                    },
                },
            },
            {
                "pixels of a 2 x 2 grey image": {
                    "id": "42",
                    "inputs": [
                        {"name": "images", "shape": [1, 2, 2, 1], "datatype": "UINT8", "data": [0, 255, 128, 7]}
                    ],
                }
            },
        ),
        "application/octet-stream": {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "the same JSON without data, of Inference-Header-Content-Length bytes, then the tensor",
            }
        },
    },
}
