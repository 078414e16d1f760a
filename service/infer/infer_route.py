"""The Open Inference Protocol, version 2 (REST with binary tensors), on the same engines as /predict.

https://github.com/kserve/open-inference-protocol, https://github.com/triton-inference-server/server (binary data).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from service.errors import ServiceError
from service.http import encodings, error_answers, json_body, keys
from service.http.answers import answer_of
from service.http.json_body import JSON
from service.infer import infer_schemas, outputs, request_parameters, tensors
from service.infer.infer_schemas import InferResponse, TensorMetadata
from service.infer.request_parameters import invalid
from service.infer.tensors import HEADER_LENGTH
from service.models.calls import PredictionCall
from service.models.engine import Engine
from service.models.label_engine import LabelEngine
from service.predict import decoding
from service.predict.decoding import AnswerTimer
from service.predict.predict_route import LARGE_ANSWER
from service.predict.request_body import RAW, light
from service.runtime import runtime_of
from service.settings import Settings
from trueodds.inputs import Inputs, InputTooLargeError, Limits
from trueodds.texts import short

EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "statistics"]
"""Triton's names of the supported extensions. `model_repository` is missing because only its index exists."""

LARGE_PACKED = LARGE_ANSWER // 20
"""Probabilities from which a compressed answer is made in a thread; see LARGE_ANSWER."""

errors = partial(error_answers.document_errors, error_answers.OpenInferenceError)

router = APIRouter(tags=["open inference protocol"])
fast = APIRouter(tags=["open inference protocol"])


@router.get("/v2", summary="Get the server's metadata", response_model=infer_schemas.ServerMetadata)
async def server(request: Request) -> Response:
    """Return name, version and extensions of the server."""
    return _json(infer_schemas.ServerMetadata(name="TrueOdds", version=request.app.version, extensions=EXTENSIONS))


@router.get("/v2/health/live", summary="Check that the server is alive", response_model=infer_schemas.Live)
async def live() -> Response:
    """Answer 200 as long as the process runs."""
    return _json(infer_schemas.Live(live=True))


@router.get(
    "/v2/health/ready",
    summary="Check that the server is ready",
    response_model=infer_schemas.Ready,
    responses=errors(_503="no model is ready yet, or the store is not writable"),
)
async def ready(request: Request) -> Response:
    """Answer 200 once the default model is loaded and its answers can be stored."""
    runtime = runtime_of(request)
    ready = runtime.registry.default is not None  # raises ServiceError with the reason if there is none
    await runtime.check_store()
    return _json(infer_schemas.Ready(ready=ready))


UNKNOWN = "unknown model or version"
_METADATA: dict[str, Any] = {
    "response_model": infer_schemas.ModelMetadata,
    "responses": errors(_404=UNKNOWN, _422="not a name", _503="the version is refused, or there is no default"),
}
_READY: dict[str, Any] = {**_METADATA, "response_model": infer_schemas.ModelReady}
_INFER: dict[str, Any] = {
    "openapi_extra": {"requestBody": infer_schemas.BODY, **keys.NEEDS_KEY},
    "responses": {
        200: {"content": {**answer_of(InferResponse), "application/octet-stream": {}}},
        **errors(
            _400="not JSON",
            _404=UNKNOWN,
            _408="the body came too slowly",
            _409="the id was used for another input",
            _413="too many bytes or inputs",
            _415="neither JSON nor binary",
            _422="not an input of this model",
            _503="not loaded, or too many requests are waiting",
            **keys.ERRORS,
        ),
    },
}


@router.get("/v2/models/{model}", summary="Get the metadata of a model", **_METADATA)
async def model_metadata(request: Request, model: str) -> Response:
    """Return the inputs and outputs of the default version.

    Its input is one tensor. Its outputs are calibrated probabilities, and an id per row with which you send the true
    label. A model of independent labels has one output, `label`: a probability for each. Ask it with POST /predict.
    """
    return await _metadata(request, model, None)


@router.get("/v2/models/{model}/versions/{version}", summary="Get the metadata of a version", **_METADATA)
async def version_metadata(request: Request, model: str, version: str) -> Response:
    """Return inputs and outputs of this version."""
    return await _metadata(request, model, version)


@router.get("/v2/models/{model}/ready", summary="Check that a model is ready", **_READY)
async def model_ready(request: Request, model: str) -> Response:
    """Answer 200 if the default version is loaded and has passed every check, else 503 with the reason."""
    return await _ready(request, model, None)


@router.get("/v2/models/{model}/versions/{version}/ready", summary="Check that a version is ready", **_READY)
async def version_ready(request: Request, model: str, version: str) -> Response:
    """Load the version. Answer 200 if it has passed every check, else 503 with the reason."""
    return await _ready(request, model, version)


@fast.post("/v2/models/{model}/infer", summary="Predict with a model", **_INFER)
async def model_infer(request: Request, model: str) -> Response:
    """Return calibrated probabilities for a tensor of inputs. They are stored before the answer is sent.

    Send one input, as the model's metadata describe it. `images` is UINT8, or another numeric type with whole values in
    0..255. `features` is FP32, or another numeric type.

    Parameters: `prediction_id` (your own id, for a single row), `tag`, `propensity`, `set` (level of conformal sets),
    `binary_data_output` and `timeout`. `timeout` is in microseconds; 0 means none. After it the service answers 503,
    although the prediction may be stored. `priority`, `sequence_id`, `sequence_start` and `sequence_end` have no
    effect: models keep no state between requests.
    """
    return await _infer(request, model, None)


@fast.post("/v2/models/{model}/versions/{version}/infer", summary="Predict with a version", **_INFER)
async def version_infer(request: Request, model: str, version: str) -> Response:
    """Return calibrated probabilities of this version. It is loaded first if necessary."""
    return await _infer(request, model, version)


async def _metadata(request: Request, model: str, version: str | None) -> Response:
    registry = runtime_of(request).registry
    engine = await registry.answering(model, version)
    kind, of_labels = engine.card.input, isinstance(engine, LabelEngine)
    names = infer_schemas.ClassNames(classes=list(engine.card.classes), multilabel=of_labels)
    classes = len(names.classes)
    datatypes = {"label": "FP64"} if isinstance(engine, LabelEngine) else infer_schemas.datatypes_of(engine.version)
    taken = TensorMetadata(name=kind.tensor, datatype=kind.datatype, shape=[-1, *kind.tensor_shape], parameters=kind)
    return _json(
        infer_schemas.ModelMetadata(
            name=model,
            versions=registry.versions(model),
            platform="onnxruntime_onnx",
            inputs=[taken],
            outputs=[
                TensorMetadata(
                    name=name,
                    datatype=datatype,
                    shape=[-1, classes] if of_labels or name in infer_schemas.PER_CLASS else [-1],
                    parameters=names if name == "label" else None,
                )
                for name, datatype in datatypes.items()
            ],
        )
    )


async def _ready(request: Request, model: str, version: str | None) -> Response:
    await runtime_of(request).registry.answering(model, version)
    return _json(infer_schemas.ModelReady(name=model, ready=True))


async def _infer(request: Request, model: str, version: str | None) -> Response:
    keys.check(request, "predict")
    if name := next(iter(request.query_params), ""):
        cure = 'parameters go into the body, such as {"parameters": {"tag": "night"}, "inputs": [..]}'
        raise invalid(f"{short(name)} is in the query, where this protocol has no parameters; {cure}")
    runtime = runtime_of(request)
    engine = await runtime.registry.engine(model, version)
    with engine:
        request.state.version = engine.version.model, engine.version.version
        head, binary = await _parts(request)
        time = AnswerTimer(request, runtime.settings.answer_seconds, engine.input.noun)
        tree, call = await _read_call(head, binary, engine, runtime.settings, request.state.request_id, time)
        wanted, rule = outputs.requested_outputs(tree, engine), outputs.rule_of_sets(tree, engine)
        result = await engine.predict(call, seconds=time.seconds, left=time.left, is_gone=request.is_disconnected)
    coding = encodings.preferred_coding(request.headers.get("accept-encoding", ""))
    answer = partial(outputs.answer, tree, wanted, result, engine, call, coding, rule)
    large = result.probabilities_NC.size > (LARGE_PACKED if coding else LARGE_ANSWER)
    return await asyncio.to_thread(answer) if large else answer()


async def _parts(request: Request) -> tuple[bytes, bytes]:
    """Return the JSON head of an infer request and the binary data that follows it."""
    length = request.headers.get(HEADER_LENGTH)
    kind = json_body.media_type(request)
    if kind not in ("", JSON) and (length is None or kind != RAW):  # Triton's client sends no content type
        taken = f"{JSON}, or {RAW} with"
        message = f"the content type is {short(kind)}; {request.url.path} takes {taken}"
        raise ServiceError(415, "unsupported_media_type", f"{message} Inference-Header-Content-Length")
    body = await json_body.read(request)
    if length is None:
        return body, b""
    if not (length.isdecimal() and len(length) < 20 and int(length) <= len(body)):
        message = f"Inference-Header-Content-Length is {short(length)}; the body has {len(body):,} bytes"
        raise ServiceError(400, "invalid_header", message)
    return body[: int(length)], body[int(length) :]


async def _read_call(
    head: bytes, binary: bytes, engine: Engine, settings: Settings, request_id: str, time: AnswerTimer
) -> tuple[dict[str, Any], PredictionCall]:
    kind, limits = engine.input, Limits(settings.max_instances, settings.max_pixels)

    def build(tree: Any) -> tuple[dict[str, Any], Inputs | None]:
        _check_body(tree)
        try:
            return tree, tensors.inputs_of(tree.get("inputs"), binary, kind, light(limits))
        except InputTooLargeError:
            return tree, None

    tree, inputs = await json_body.convert_json(head, settings.max_json_values, build, time.run)
    time.seconds = request_parameters.seconds(tree["parameters"], time.seconds)
    if inputs is None:
        size, work = len(head) + len(binary), partial(tensors.inputs_of, tree.get("inputs"), binary, kind, limits)
        inputs = await time.run(decoding.threads, size, work)
    kept: dict[str, Any] = {key: tree[key] for key in ("id", "parameters", "outputs") if key in tree}
    lists: dict[str, Any] = {**_lists(tree["parameters"], len(inputs), kind.noun)}
    return kept, PredictionCall(inputs, request_id, **lists)


def _check_body(tree: Any) -> None:
    """Raise ServiceError if the body has another shape. Replace its parameters by the validated ones."""
    if not isinstance(tree, dict):
        raise invalid(f"the body is {short(tree)}; expected an object with inputs")
    if unknown := tree.keys() - {"id", "parameters", "inputs", "outputs"}:
        raise invalid(f"unknown key {short(min(unknown))}; allowed are id, parameters, inputs and outputs")
    if not isinstance(tree.get("id", ""), str):
        raise invalid(f"id is {short(tree['id'])}; expected a text")
    tree["parameters"] = request_parameters.read_parameters(tree.get("parameters", {}))


def _lists(parameters: dict[str, Any], count: int, noun: str) -> dict[str, list[Any]]:
    """Return the request's parameters as lists with one value per input."""
    lists: dict[str, list[Any]] = {}
    if "prediction_id" in parameters:
        if count != 1:
            raise invalid(f"parameters.prediction_id names one {noun}; this call has {count:,}")
        lists["ids"] = [parameters["prediction_id"]]
    if "tag" in parameters:
        lists["tags"] = [parameters["tag"]] * count
    if "propensity" in parameters:
        lists["propensities"] = [parameters["propensity"]] * count
    return lists


def _json(body: BaseModel) -> Response:
    return Response(body.model_dump_json(), media_type=JSON)
