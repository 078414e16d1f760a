"""Triton's extensions of the Open Inference Protocol that describe models: configuration, statistics, index.

https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from service.errors import ServiceError
from service.http import json_body, keys
from service.http.json_body import JSON
from service.infer import infer_schemas
from service.infer.infer_route import UNKNOWN, errors
from service.infer.infer_schemas import CLASSIFIED, IndexEntry, ModelConfig, ModelStatistics, datatypes_of
from service.infer.tensors import BYTES
from service.models.model_schemas import State
from service.runtime import runtime_of
from service.telemetry.statistics import Statistics
from trueodds.texts import short

READY: tuple[State, ...] = ("loaded", "altered")

router = APIRouter(tags=["open inference protocol"])


_CONFIG: dict[str, Any] = {
    "response_model": ModelConfig,
    "responses": errors(_404=UNKNOWN, _422="not a name", _503="the version is refused, or there is no default"),
}
_STATISTICS: dict[str, Any] = {
    "response_model": ModelStatistics,
    "dependencies": [keys.requires("read")],
    "responses": errors(_404=UNKNOWN, _422="not a name", **keys.ERRORS),
}


@router.get("/v2/models/{model}/config", summary="Get the configuration of a model", **_CONFIG)
async def model_config(request: Request, model: str) -> Response:
    """Return Triton's ModelConfig of the default version.

    Shapes omit the batch axis. `max_batch_size` is the largest number of rows in a request.
    """
    return await _config(request, model, None)


@router.get("/v2/models/{model}/versions/{version}/config", summary="Get the configuration of a version", **_CONFIG)
async def version_config(request: Request, model: str, version: str) -> Response:
    """Return Triton's ModelConfig of this version."""
    return await _config(request, model, version)


@router.get("/v2/models/stats", summary="Get the statistics of all models", **_STATISTICS)
async def statistics(request: Request) -> Response:
    """Return requests and batches of every published version, over all workers, since the service started.

    Durations that the service does not measure have the count 0: `queue`, `compute_input`, `compute_output`,
    `cache_hit`. `batch_stats` is empty. `compute_infer` counts batches, not requests.
    """
    registry = runtime_of(request).registry
    return await _statistics(request, [(m, v) for m in registry.names() for v in registry.versions(m)])


@router.get("/v2/models/{model}/stats", summary="Get the statistics of a model", **_STATISTICS)
async def model_statistics(request: Request, model: str) -> Response:
    """Return the statistics of each version of this model."""
    registry = runtime_of(request).registry
    if model not in registry.names():
        await registry.engine(model)  # raises the error that lists the known models
    return await _statistics(request, [(model, version) for version in registry.versions(model)])


@router.get("/v2/models/{model}/versions/{version}/stats", summary="Get the statistics of a version", **_STATISTICS)
async def version_statistics(request: Request, model: str, version: str) -> Response:
    """Return the statistics of this version."""
    registry = runtime_of(request).registry
    if version not in registry.versions(model):
        await registry.engine(model, version)
    return await _statistics(request, [(model, version)])


@router.post(
    "/v2/repository/index",
    summary="List the versions",
    response_model=list[IndexEntry],
    dependencies=[keys.requires("read")],
    openapi_extra={"requestBody": infer_schemas.INDEX_BODY},
    responses=errors(
        _400="not JSON", _408="the body came too slowly", _413="too many bytes", _422="unknown key", **keys.ERRORS
    ),
)
async def index(request: Request) -> Response:
    """List every published version and whether it is loaded. `{"ready": true}` lists only loaded versions.

    A request that names an unloaded version loads it.
    """
    only_ready = await _only_ready(request)
    entries: list[IndexEntry] = []
    for model in runtime_of(request).registry.models(())["models"]:
        for version in model["versions"]:
            if (ready := version["state"] in READY) or not only_ready:
                reason = version["reason"] or ("" if ready else "a request that names it loads it")
                state = "READY" if ready else "UNAVAILABLE"
                entries.append(
                    {"name": model["model"], "version": version["version"], "state": state, "reason": reason}
                )
    return Response(orjson.dumps(entries), media_type=JSON)


async def _only_ready(request: Request) -> bool:
    body = await json_body.read(request)
    if not body:  # Triton's client sends an empty body
        return False
    tree = json_body.parse(body, runtime_of(request).settings.max_json_values)
    if not isinstance(tree, dict) or tree.keys() - {"ready"} or not isinstance(tree.get("ready", False), bool):
        message = f'the body is {short(tree)}; allowed are {{"ready": true}}, {{"ready": false}} and an empty body'
        raise ServiceError(422, "invalid_request", message)
    return bool(tree.get("ready", False))


async def _config(request: Request, model: str, version: str | None) -> Response:
    runtime = runtime_of(request)
    engine = await runtime.registry.engine(model, version)
    kind, classes = engine.card.input, len(engine.version.classes)
    config: ModelConfig = {
        "name": engine.version.model,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": runtime.settings.max_instances,
        "input": [
            {"name": kind.tensor, "data_type": _data_type(kind.datatype), "dims": list(kind.tensor_shape)},
        ],
        "output": [
            {"name": name, "data_type": _data_type(datatype), "dims": [classes] if name in CLASSIFIED else []}
            for name, datatype in datatypes_of(engine.version).items()
        ],
    }
    return Response(orjson.dumps(config), media_type=JSON)


def _data_type(datatype: str) -> str:
    """Return ModelConfig's name of a datatype of the protocol."""
    return "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"


async def _statistics(request: Request, versions: list[tuple[str, str]]) -> Response:
    counted = await asyncio.to_thread(runtime_of(request).telemetry.statistics)
    of_each = [infer_schemas.version_statistics(*key, counted.get(key, Statistics())) for key in versions]
    return Response(orjson.dumps({"model_stats": of_each}), media_type=JSON)
