"""Routes that call webhooks: a test of them, and news of a recalibration that ended without a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.alarm import webhooks
from service.http import documentation, error_answers, json_body, keys, signed_body
from service.http.signed_body import Name, SignedBody
from service.runtime import Runtime, runtime_of
from service.settings import Webhook
from service.store.rows import Version

router = APIRouter()


class WebhookTest(BaseModel):
    webhook: str = Field(description="scheme, host and port of its URL; the rest may be a secret")
    taken: bool = Field(description="whether it has answered 2xx")
    problem: str | None
    flow_run: str | None = Field(description="id of the Prefect flow run that it has started")


class AlarmTest(BaseModel):
    webhooks: list[WebhookTest]


class UndecidedBody(SignedBody):
    """The recalibration that ended without a decision, who ran it, and why."""

    model_config = ConfigDict(title="UndecidedRecalibration")

    model: Name | None = None
    version: Name | None = None


def examples(version: Version) -> documentation.Examples:
    """Bodies of a report that a recalibration of the version ended without a decision."""
    report = {"model": version.model, "version": version.version, "who": "flow run", "why": "Failed: the disk is full"}
    return {json_body.JSON: {"a failed run": report}}


@router.post(
    "/admin/alarm/test",
    tags=["operation"],
    summary="Try the alarm's webhooks",
    dependencies=[keys.requires("admin")],
    responses={
        200: {"model": AlarmTest},
        **error_answers.documented(_503="no model is loaded", **keys.ERRORS),
    },
)
async def try_webhooks(request: Request) -> Response:
    """Send every webhook a test, of type `calibration-alarm-test`, in the way that an alarm takes. A Prefect deployment
    gets a run with `dry_run`, which only looks whether all that it needs is there.
    """
    runtime = runtime_of(request)
    version, address = runtime.engine.version, runtime.settings.address
    body = webhooks.trial_news(version.model, version.version, address=address)
    return await _call(runtime, runtime.settings.alarm_webhook, body)


@router.post(
    "/admin/recalibration/undecided",
    summary="Report a recalibration without a decision",
    **signed_body.route(UndecidedBody, AlarmTest),
)
async def report_undecided(request: Request) -> Response:
    """Say that an automatic recalibration has failed and no further run of it follows. It is counted, and every webhook
    is told by news of type `recalibration-undecided`, except those that start a Prefect deployment.
    """
    runtime = runtime_of(request)
    settings, expected = runtime.settings, "who and why, and maybe model and version"
    body = await json_body.read_json(
        request, settings.max_json_values, lambda tree: signed_body.read(UndecidedBody, tree, expected)
    )
    runtime.telemetry.undecided()
    reading = f"A recalibration ended without a decision ({body.who}): {body.why}"
    told = webhooks.undecided_news(body.model, body.version, reading, address=settings.address)
    return await _call(runtime, [hook for hook in settings.alarm_webhook if not hook.starts_run], told)


async def _call(runtime: Runtime, hooks: Iterable[Webhook], body: dict[str, Any]) -> Response:
    """The answer after a try of each webhook."""

    async def attempt(hook: Webhook) -> WebhookTest:
        try:
            run = await webhooks.send(hook, body)
        except webhooks.WebhookError as error:
            runtime.telemetry.delivery(str(hook), delivered=False)
            return WebhookTest(webhook=str(hook), taken=False, problem=str(error), flow_run=None)
        runtime.telemetry.delivery(str(hook), delivered=True)
        return WebhookTest(webhook=str(hook), taken=True, problem=None, flow_run=run)

    test = AlarmTest(webhooks=await asyncio.gather(*map(attempt, hooks)))
    return Response(test.model_dump_json(), media_type=json_body.JSON)
