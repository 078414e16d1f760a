"""The ASGI application: `create_app(settings)` combines the routes of all packages with the HTTP middleware."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline  # FastAPI whose /docs needs no CDN
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from service.alarm import alarm_route, groups_route, webhook_route
from service.alarm.coverage_watch import CoverageWatch
from service.alarm.group_watch import GroupWatch
from service.alarm.notices import KINDS as NOTICES
from service.alarm.notices import NoticeWatch
from service.alarm.watch import PromiseWatch, Watch
from service.http import documentation, error_answers, keys, parameters
from service.http.connections import LOST
from service.http.documentation import LiveExamples
from service.http.envelope import Envelope
from service.http.routing import FastRoutes, ReadOnly, reading_routes
from service.infer import extensions, infer_route, infer_schemas
from service.labels import feedback_route, judge_route, label_schemas, labelled_route, settling_route, voiding_route
from service.labels.judge_readings import JudgeReadings
from service.models.label_engine import LabelEngine
from service.observe import decision_route, decision_schemas, kserve_route, observe_route, observe_schemas
from service.observe.parquet import ParquetFiles
from service.predict import predict_route, predict_schemas
from service.predict.stored import stored_route
from service.predict.stored.archive import AnswerArchive
from service.report import audit_route, label_report_route, pages, question_route, queue_route, report_route
from service.report.questions import Overview
from service.report.recent import RecentLabels
from service.runtime import Runtime
from service.settings import OFF, Settings
from service.status import status_route
from service.status.gauges import Gauges
from service.store.housekeeping import keep_house
from trueodds import __version__

DESCRIPTION = """Serve calibrated class probabilities, and measure from labels whether they stay calibrated.

1. Send inputs to `POST /predict`. Every answer has an `id`. For a model on another server, send its answers to
   `POST /observe` instead.
2. Send the `id` and the true label to `POST /feedback` as soon as you know the label.
3. Read `GET /calibration-report`. It compares the confidence with the observed accuracy: of all answers with a
   confidence of 90%, are 90% correct?

You may compress a body with `content-encoding: gzip` or `deflate`. The limits apply to its decompressed size.
"""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the ASGI application. It opens its store at startup.

    Args:
        settings: The settings; read from the environment by default.
    """
    runtime, parquet = Runtime(settings or Settings()), ParquetFiles()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        shared = {LOST: runtime.telemetry.count_lost}
        try:
            await runtime.open()
            store, chosen = runtime.store, runtime.settings
            if chosen.read_only:
                yield shared
                return
            archive = AnswerArchive(store, chosen.archive, audit_share=chosen.audit_share) if chosen.archives else None
            off = chosen.archive == OFF
            housekeeping = keep_house(store, chosen.retention_days, chosen.hold_hours, archive=archive, no_copy=off)
            pairs = kserve_route.keep_pairs(store, runtime.telemetry)
            told = store, chosen, runtime.telemetry
            watches = [
                Watch(*told),
                PromiseWatch(*told),
                CoverageWatch(*told),
                GroupWatch(*told),
                *(NoticeWatch(*told, kind) for kind in NOTICES),
            ]
            async with _background(housekeeping, pairs, *(watch.keep_watching() for watch in watches)):
                yield shared
        finally:
            await runtime.close()
            parquet.close()

    app = FastAPIOffline(
        title="TrueOdds",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # the framework would redirect to any host that the caller names
        redoc_url=None,  # its script loads the vendor's logo from the network
        # The check for OpenTelemetry at every request took 3% of the event loop's time.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        routes=_routes(runtime.settings.read_only),
    )
    app.state.runtime, app.state.keys = runtime, keys.ApiKeys(runtime.settings)
    app.state.parquet = parquet
    app.state.overview = Overview()
    app.state.judges = JudgeReadings()
    app.state.audits = asyncio.Lock()
    app.state.recent, app.state.gauges = RecentLabels(), Gauges(__version__, read_only=runtime.settings.read_only)
    documentation.install(app, lambda: runtime.registry.default.key, lambda: _examples(runtime))
    if runtime.settings.read_only:
        app.add_middleware(ReadOnly)
    else:
        app.add_middleware(FastRoutes, routes=[*predict_route.fast.routes, *infer_route.fast.routes])
    app.add_middleware(
        Envelope,
        telemetry=runtime.telemetry,
        settings=runtime.settings,
        streamed_types={
            "/feedback": feedback_route.READERS,
            judge_route.PATH: feedback_route.READERS,
            "/observe": observe_route.STREAMED,
            "/observe/decisions": decision_route.STREAMED,
        },
    )
    error_answers.install(app)
    app.middleware_stack = _from_envelope(app)
    return app


@cache
def _routes(read_only: bool) -> list[BaseRoute]:
    """Return the routes, which all applications of this process share.

    FastAPI prepares the routes at the first request that passes them: that takes a processor 40 ms.
    """
    documented = (
        *(
            observe_route.router,
            decision_route.router,
            kserve_route.router,
            status_route.router,
            feedback_route.router,
            judge_route.router,
            labelled_route.router,
        ),
        *(voiding_route.router, settling_route.router),
        *(stored_route.router, report_route.router, label_report_route.router, question_route.router),
        *(queue_route.router, audit_route.router),
        *(alarm_route.router, groups_route.router, webhook_route.router),
    )
    part = reading_routes if read_only else lambda router: router
    together = APIRouter()
    for router in documented:
        together.include_router(part(router), dependencies=[parameters.DECLARED])
    for router in (predict_route.fast, pages.router, infer_route.fast, extensions.router, infer_route.router):
        together.include_router(part(router))
    return together.routes


def _from_envelope(app: FastAPI) -> ASGIApp:
    """Return the application's layers from the envelope on.

    The framework has two layers around it, for unexpected errors and for telemetry. The envelope answers all errors,
    and telemetry is off, so both would only cost time.
    """
    stack: Any = app.build_middleware_stack()
    while not isinstance(stack, Envelope):
        stack = stack.app
    return stack


@asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutines until the block ends."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _examples(runtime: Runtime) -> LiveExamples:
    """Return examples for the default model; raise ServiceError while there is none.

    For a model of independent labels they are those of its first label's question. /v2 does not answer for it.
    """
    engine = runtime.registry.default
    version = engine.versions[0] if isinstance(engine, LabelEngine) else engine.version
    infer_bodies = {} if isinstance(engine, LabelEngine) else infer_schemas.examples(engine)
    return LiveExamples(
        parameters={
            "model": version.model,
            "version": version.version,
            "id": stored_route.EXAMPLE_ID,
        },
        bodies={
            "/predict": predict_schemas.examples(engine.input),
            "/v2/models/{model}/infer": infer_bodies,
            "/v2/models/{model}/versions/{version}/infer": infer_bodies,
            "/observe": observe_schemas.examples(),
            "/observe/decisions": decision_schemas.examples(),
            "/kserve/logger": observe_schemas.event_examples(),
            "/feedback": label_schemas.examples(version),
            "/admin/labels/void": voiding_route.examples(label_schemas.EXAMPLE_IMPORT),
            "/admin/labels/settle": settling_route.examples(),
            "/admin/alarm/acknowledge": alarm_route.examples(version),
            "/admin/recalibration/undecided": webhook_route.examples(version),
            **queue_route.examples(version),
            "/admin/alarm/rearm": alarm_route.rearming_examples(version),
            "/admin/alarm/groups/acknowledge": groups_route.examples(version),
            "/admin/alarm/groups/rearm": groups_route.rearming_examples(version),
        },
    )
