"""Routes about the state of the service, for load balancers, Prometheus and people."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import orjson
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from service.alarm import (
    ALARM,
    COVERAGE,
    GROUPS,
    PROMISE,
    AlarmState,
    CoverageState,
    GroupState,
    PromiseState,
    acting_alone,
    class_shares_of,
    expected_of,
    set_coverage,
)
from service.alarm.readings import Standing, standing
from service.http import documentation, error_answers, keys
from service.http.json_body import JSON
from service.http.parameters import prefers_html
from service.http.routing import root_of
from service.labels.live_shares import shares_of_last_day
from service.models.model_schemas import Models, stored_models
from service.runtime import Runtime, runtime_of
from service.status.gauges import Gauges, VersionState, choose_versions
from service.store import StoreError
from service.store.rows import Version
from trueodds.reports import ReportOptions
from trueodds.reports.labelling import choice_of
from trueodds.reports.schemas import ClassShares, ExpectedDecisions
from trueodds.reports.schemas.alarm import ActingAlone
from trueodds.reports.schemas.sets import SetCoverage
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveSums

router = APIRouter()


class Health(BaseModel):
    """State of the process, and the version that answers."""

    status: Literal["live", "ready"]
    model: str | None = None
    version: str | None = None
    problem: str | None = None
    """Problem that does not keep the service from answering."""


@router.get("/health/live", tags=["operation"], response_model=Health, summary="Check that the process is alive")
async def live() -> Response:
    """Answer 200 as long as the process runs."""
    return _health(Health(status="live"))


@router.get(
    "/health/ready",
    tags=["operation"],
    response_model=Health,
    summary="Check that the service is ready",
    responses=error_answers.document_errors(
        _503="no model is loaded, or the store is not writable; the message says why"
    ),
)
async def ready(request: Request) -> Response:
    """Answer 200 if a bundle is loaded, has reproduced its golden prediction, and the store is writable.

    A read-only service is ready if its store is readable.
    """
    runtime = runtime_of(request)
    if runtime.settings.read_only:
        await runtime.check_store()
        return _health(Health(status="ready"))
    model, version = runtime.registry.default.key
    await runtime.check_store()
    health = Health(status="ready", model=model, version=version)
    if runtime.registry.away:
        health.problem = (
            "the bucket of models cannot be read, so the copies fetched earlier are served; see GET /models"
        )
    elif runtime.settings.archives and await runtime.store.read_archive_problem():
        health.problem = (
            "the archive cannot be written, so old answers stay in the store; read the service's log for the reason"
        )
    return _health(health)


@router.get(
    "/models",
    tags=["operation"],
    response_model=Models,
    summary="List the models",
    dependencies=[keys.requires("read")],
    responses=error_answers.document_errors(**keys.ERRORS),
)
async def models(request: Request) -> Response:
    """List every published version, the roles, and the reasons of refused versions; also models on other servers.

    A read-only service lists the versions whose answers are in the store.
    """
    runtime = runtime_of(request)
    versions = await runtime.store.read_versions()
    listed = runtime.registry.models(versions)
    if runtime.settings.read_only:
        listed["models"] = stored_models(versions)
    return Response(orjson.dumps(listed, default=BaseModel.model_dump), media_type=JSON)


@router.get(
    "/metrics",
    summary="Get metrics for Prometheus",
    response_class=Response,
    **documentation.route("read", content={"text/plain": {}}, tag="operation"),
)
async def metrics(request: Request) -> Response:
    """Return counts of all workers and of the store, in Prometheus's format.

    Workers count requests, latencies, batches and labels. The store has answers, labels, ECE and the alarm's evidence.
    """
    runtime, gauges = runtime_of(request), request.app.state.gauges
    assert isinstance(gauges, Gauges)
    loaded, altered = list(runtime.registry.intended_versions()), list(runtime.registry.file_changes())
    versions, left_out = choose_versions(await runtime.store.read_versions_by_activity(), loaded)
    states = []
    for version in versions:
        sums = await runtime.store.read_sums(*version.key)
        alarm = await _read_alarm(runtime, version)
        acting = await _read_acting(runtime, version, sums.answers)
        matured = await runtime.store.read_maturity_counts(*version.key)
        sets = await _read_sets(runtime, version, sums)
        groups = await _read_groups(runtime, version)
        expected, shares = await _read_expectation(runtime, version, sums, alarm[1])
        state = VersionState(version, sums, *alarm, acting, matured, sets=sets, groups=groups, expected=expected)
        counts = sums.answers, sums.labelled.n
        judge = await request.app.state.judges.of_all(runtime.store, version, ReportOptions(), counts)
        states.append(replace(state, class_shares=shares, judge=judge))
    held = await runtime.store.read_held()
    of_questions = await runtime.store.read_questions(), await runtime.store.read_notices()
    archive = await runtime.store.read_archive()
    shown = archive if runtime.settings.archives or archive.files else None

    def text() -> bytes:
        return runtime.telemetry.text(gauges.families(states, loaded, altered, held, left_out, *of_questions, shown))

    return Response(await asyncio.to_thread(text), media_type=CONTENT_TYPE_LATEST)


async def _read_alarm(runtime: Runtime, version: Version) -> tuple[AlarmState | None, Standing]:
    """Read a version's evidence, or None if it is damaged, and the state of its alarm."""
    tree = await runtime.store.read_state(*version.key, ALARM)
    try:
        state = AlarmState.read(tree, runtime.settings)
    except StoreError:
        return None, "quiet"
    return state, standing(state, version.model)


async def _read_acting(runtime: Runtime, version: Version, answers: int) -> ActingAlone | None:
    """Read the results of a version's promise to act alone; None without a promise or if its evidence is damaged."""
    if version.act_alone is None:
        return None
    key = version.key
    tree, acted = await runtime.store.read_state(*key, PROMISE), await runtime.store.count_acting_answers(*key)
    try:
        state = PromiseState.read(tree, version.act_alone, runtime.settings)
    except StoreError:
        return None
    return acting_alone(state, runtime.settings, answers=answers, acted_count=acted)


async def _read_sets(runtime: Runtime, version: Version, sums: AnswerSums) -> SetCoverage | None:
    """Read the live coverage of a version's sets; None without sets or if its evidence is damaged."""
    if not version.set_rules:
        return None
    choice = choice_of(sums)
    is_chosen = choice is not None and choice.warning
    try:
        tree = await runtime.store.read_state(*version.key, COVERAGE)
        state = CoverageState.read(tree, version.set_rules, runtime.settings)
        return set_coverage(state, version.classes, is_chosen=is_chosen)
    except StoreError:
        return None


async def _read_groups(runtime: Runtime, version: Version) -> GroupState | None:
    """Read the evidence about a version's tags and classes; None if it is damaged."""
    tree = await runtime.store.read_state(*version.key, GROUPS)
    try:
        return GroupState.read(tree, len(version.classes), runtime.settings)
    except StoreError:
        return None


async def _read_expectation(
    runtime: Runtime, version: Version, sums: AnswerSums, state: Standing
) -> tuple[tuple[ExpectedDecisions, ...], ClassShares | None]:
    """Return the expected results of a version's answers without a label, and the class shares of its answers."""
    name = version.positive
    if name is None and version.act_alone is None:
        return (), await shares_of_last_day(runtime, version)
    positive = None if name is None else PositiveSums(name, await runtime.store.read_sums(*version.key, positive=True))
    options = ReportOptions(alert_threshold=runtime.settings.alert_threshold)
    refuted = None if state == "quiet" else "the calibration error is within the tolerance"
    of_all = None if positive is None else positive.sums
    expected = await asyncio.to_thread(expected_of, version, options, refuted, sums, positive, sums, of_all)
    shares = await asyncio.to_thread(class_shares_of, version, options, positive)
    return tuple(expected), shares or await shares_of_last_day(runtime, version)


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    """Redirect a browser to the report, or to the reports of independent labels; other clients to the documentation."""
    page = "/docs"
    if prefers_html(request.headers.get("accept", "")):
        page = "/calibration-report" if runtime_of(request).registry.served_labels() is None else "/questions"
    return RedirectResponse(f"{root_of(request)}{page}", headers={"vary": "accept"})


def _health(health: Health) -> Response:
    return Response(health.model_dump_json(exclude_unset=True), media_type=JSON)
