"""Examples in /openapi.json that the service answers: /docs sends the first one of a route as it stands."""

from __future__ import annotations

import base64
import copy
import csv
import io
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI

from service.errors import ServiceError
from service.http.json_body import JSON
from service.labels import bulk
from service.models.engine import Engine
from service.runtime import Runtime
from service.schemas import content
from trueodds.inputs.pictures import Pixels, encode_png

FEW = 4096
"""Pixel values up to which an example shows them one by one."""


def install(app: FastAPI, runtime: Runtime) -> None:
    """Have the document made with examples of the model that answers when it is asked for."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        try:
            return _with_examples(plain(), runtime.engine)
        except ServiceError:  # nothing answers yet
            return plain()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend the document


def _with_examples(document: dict[str, Any], engine: Engine) -> dict[str, Any]:
    found = copy.deepcopy(document)
    named = {"model": engine.version.model, "version": engine.version.version}
    for path, operations in found["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["example"] = named[parameter["name"]]
            for kind, values in _bodies(path, engine).items():
                body = operation["requestBody"]["content"]
                body[kind] = content(body[kind]["schema"], values)
    return found


def _bodies(path: str, engine: Engine) -> dict[str, dict[str, Any]]:
    """Examples of a route's body, by content type and name."""
    version = engine.version
    if path == "/predict":
        return {JSON: _instances(engine)}
    if path.endswith("/infer"):
        return {JSON: _tensors(engine)}
    if path == "/feedback":  # of ids that nothing was predicted for: these labels are held, and enter no report
        first, second = ({"id": f"example-{n}", "label": version.classes[0], "model": version.model} for n in (1, 2))
        several = {"labels": [first, second]}
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([first.keys(), first.values(), second.values()])
        return {
            JSON: {"one label": first, "several": several, "a correction": {**first, "correct": True}},
            bulk.CSV: {"two labels": table.getvalue()},
            bulk.NDJSON: {"two labels": b"".join(orjson.dumps(row) + b"\n" for row in (first, second)).decode()},
        }
    if path == "/admin/alarm/acknowledge":
        asked = {"model": version.model, "version": version.version, "who": "Ada", "why": "recalibrating today"}
        return {JSON: {"all that has fired": asked}}
    return {}


def _instances(engine: Engine) -> dict[str, Any]:
    pixels_HWC = _golden(engine)
    found = {"a picture": {"instances": [{"b64": base64.b64encode(encode_png(pixels_HWC)).decode()}]}}
    if pixels_HWC.size <= FEW:
        found["pixels"] = {"instances": [pixels_HWC.tolist()]}
        found["raw bytes"] = {"instances": [{"pixels_b64": engine.card.golden.input_b64}]}
    return found


def _tensors(engine: Engine) -> dict[str, Any]:
    pixels_HWC = _golden(engine)
    if pixels_HWC.size > FEW:
        return {}
    tensor = {"name": "images", "shape": [1, *pixels_HWC.shape], "datatype": "UINT8"}
    return {"an image": {"inputs": [{**tensor, "data": pixels_HWC.ravel().tolist()}]}}


def _golden(engine: Engine) -> Pixels:
    """The image whose answer is stored in the bundle."""
    stored = base64.b64decode(engine.card.golden.input_b64)
    return np.frombuffer(stored, np.uint8).reshape(engine.input.shape)
