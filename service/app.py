"""The application: `create_app(settings)`. Routes only; what they do lives in the modules they call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi_offline import FastAPIOffline  # FastAPI whose /docs needs no CDN
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response

from service import errors, examples, request_schemas, schemas
from service.alarm import route as alarm
from service.errors import ServiceError
from service.http import keys, query_parameters
from service.http.envelope import Envelope
from service.http.fast_routes import Direct
from service.infer import route as infer
from service.labels import route as labels
from service.predict import route as prediction
from service.report import pages
from service.report.recent import Recent
from service.report.route import router as report_router
from service.runtime import Runtime
from service.settings import Settings
from service.store import StoreError

DESCRIPTION = """Class probabilities that mean what they say, and a report that checks whether they still do.

1. `POST /predict` with images: every answer has an `id`.
2. `POST /feedback` with that `id` and the true label, as soon as it is known.
3. `GET /calibration-report`: of all answers with 90% confidence, are 90% right?

Bodies may be sent with `content-encoding: gzip`; what they unpack to counts against the limits.
"""
router = APIRouter()
direct = APIRouter()


def create_app(settings: Settings | None = None) -> FastAPI:
    """The ASGI application; `settings` default to the environment. Opens its store when it is started."""
    runtime = Runtime(settings or Settings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await runtime.open()
            yield
        finally:
            await runtime.close()

    app = FastAPIOffline(
        title="TrueOdds",
        version=schemas.VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # the framework redirects to whatever host the caller names
        redoc_url=None,  # its script fetches its vendor's logo
    )
    app.state.runtime, app.state.keys = runtime, keys.Keys(runtime.settings)
    app.state.recent = Recent()
    examples.install(app, runtime)
    app.add_middleware(Direct, routes=[*direct.routes, *infer.direct.routes])
    app.add_middleware(Envelope, telemetry=runtime.telemetry, settings=runtime.settings)
    app.add_exception_handler(StoreError, _store_error)
    errors.install(app)
    for part in (router, labels.router, report_router, alarm.router):
        app.include_router(part, dependencies=[query_parameters.DECLARED])
    for part in (direct, pages.router, infer.direct, infer.router):
        app.include_router(part)
    return app


NOT_READY = "no model is loaded, or too much is waiting; try again after Retry-After"


@direct.post(
    "/predict",
    tags=["odds"],
    summary="Classify images",
    openapi_extra={
        "requestBody": request_schemas.PREDICT_BODY,
        "parameters": request_schemas.PREDICT_PARAMETERS,
        **keys.NEEDS_KEY,
    },
    responses={
        200: {"model": schemas.Predictions},
        **schemas.errors(
            _400="not JSON, not .npy, or a broken form",
            _404="no such model or version",
            _408="the body came too slowly",
            _409="another input came with this id",
            _413="too many bytes, images or pixels",
            _415="none of the content types below",
            _422="not what the model takes, or a parameter out of range",
            _503=NOT_READY,
            **schemas.KEYS,
        ),
    },
)
async def predict(request: Request) -> Response:
    """Calibrated probabilities for up to 256 images.

    Send JSON, each image as nested lists of pixels, base64 of a PNG or JPEG, or base64 of raw pixels; a multipart form
    with image files in fields named `files`; a `.npy` array; or raw bytes, one image after the other. Every prediction
    is on disk before it is answered.

    An image may have an id of yours (`ids` in JSON, the header `x-prediction-id` for a single one): sent again with
    the same image it gets its stored answer, with another one a 409.
    """
    return await prediction.predict(request, _runtime(request))


@router.get("/health/live", tags=["operation"], response_model=schemas.Health, summary="Is the process up?")
async def live() -> Response:
    """200 as long as the process answers at all."""
    return _json(b'{"status":"live"}')


@router.get(
    "/health/ready",
    tags=["operation"],
    response_model=schemas.Health,
    summary="Can it answer?",
    responses=schemas.errors(_503="no model is loaded, or the store cannot be written; the message says why"),
)
async def ready(request: Request) -> Response:
    """200 once a bundle is loaded and has reproduced its golden prediction, while the store can be written."""
    runtime = _runtime(request)
    version = runtime.engine.version
    await runtime.check_store()
    return _json(orjson.dumps({"status": "ready", "model": version.model, "version": version.version}))


@router.get("/models", tags=["operation"], response_model=schemas.Models, summary="Which models are there?")
async def models(request: Request) -> Response:
    """Every published version, which of them serve or shadow, and why one is refused."""
    return _json(orjson.dumps(_runtime(request).registry.listing()))


@router.get(
    "/metrics",
    tags=["operation"],
    summary="For Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
async def metrics(request: Request) -> Response:
    """What all workers did (requests, latencies, batches, labels), and what the store holds (answers, labels, ECE,
    evidence of miscalibration).
    """
    runtime = _runtime(request)
    stored = [
        (v, await runtime.store.read_sums(v.model, v.version), *await alarm.for_telemetry(runtime, v.model, v.version))
        for v in await runtime.store.read_versions()
    ]
    registry = runtime.registry
    text = await asyncio.to_thread(runtime.telemetry.text, stored, list(registry.loaded()), list(registry.altered()))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    """The report for a browser, the documentation for everything else."""
    prefers_page = pages.is_preferred(request.headers.get("accept", ""))
    return RedirectResponse("/calibration-report" if prefers_page else "/docs", headers={"vary": "accept"})


def _runtime(request: Request) -> Runtime:
    return cast(Runtime, request.app.state.runtime)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _store_error(request: Request, error: Exception) -> Response:
    return ServiceError(503, "store_unavailable", str(error), retry_after=1).response(request.scope)
