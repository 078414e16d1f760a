"""Routes that call webhooks: a test, and the report of a recalibration that ended without a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.alarm import webhooks
from service.http import documentation, json_body, signed_body
from service.http.signed_body import Name, SignedBody
from service.runtime import Runtime, runtime_of
from service.settings import Webhook
from service.store.rows import Version

router = APIRouter()


class WebhookTest(BaseModel):
    webhook: str = Field(description="Scheme, host and port of its URL. The rest may be a secret.")
    taken: bool = Field(description="Whether it answered 2xx.")
    problem: str | None
    flow_run: str | None = Field(description="Id of the Prefect flow run that it started.")


class AlarmTest(BaseModel):
    webhooks: list[WebhookTest]


class UndecidedBody(SignedBody):
    """A recalibration that ended without a decision: who ran it, and why it ended."""

    model_config = ConfigDict(title="UndecidedRecalibration")

    model: Name | None = Field(None, description="Name of the model, if known.")
    version: Name | None = Field(None, description="Its version, if known.")


def examples(version: Version) -> documentation.Examples:
    """Return an example that reports a failed recalibration of the version."""
    report = {"model": version.model, "version": version.version, "who": "flow run", "why": "Failed: the disk is full"}
    return {json_body.JSON: {"a failed run": report}}


@router.post(
    "/admin/alarm/test",
    summary="Test the alarm's webhooks",
    **documentation.route("admin", AlarmTest, tag="operation", _503="no model is loaded"),
)
async def try_webhooks(request: Request) -> Response:
    """Send a test message of type `calibration-alarm-test` to every webhook, in the same way as an alarm.

    A Prefect deployment starts a run with `dry_run`. That run only checks that everything it needs is available.
    """
    runtime = runtime_of(request)
    reading, address = "This is a test message. No alarm has fired.", runtime.settings.address
    body = webhooks.message(webhooks.TRIAL, *runtime.registry.default.key, reading, address=address)
    return await _call(runtime, runtime.settings.alarm_webhook, body)


@router.post(
    "/admin/recalibration/undecided",
    summary="Report a recalibration without a decision",
    **signed_body.route(UndecidedBody, AlarmTest),
)
async def report_undecided(request: Request) -> Response:
    """Report that an automatic recalibration has failed and that it will not be retried.

    The service counts the failure. It sends a message of type `recalibration-undecided` to every webhook, except those
    that start a Prefect deployment.
    """
    runtime = runtime_of(request)
    settings, expected = runtime.settings, "who and why, and maybe model and version"
    body = await json_body.read_json(
        request, settings.max_json_values, lambda tree: signed_body.read(UndecidedBody, tree, expected)
    )
    runtime.telemetry.count_undecided_recalibration()
    reading = f"A recalibration ended without a decision ({body.who}): {body.why}"
    told = webhooks.message(webhooks.UNDECIDED, body.model, body.version, reading, address=settings.address)
    return await _call(runtime, [hook for hook in settings.alarm_webhook if not hook.starts_run], told)


async def _call(runtime: Runtime, hooks: Iterable[Webhook], body: dict[str, Any]) -> Response:
    """Call each webhook once and return the results."""

    async def attempt(hook: Webhook) -> WebhookTest:
        try:
            run = await webhooks.send(hook, body)
        except webhooks.WebhookError as error:
            runtime.telemetry.delivery(str(hook), is_delivered=False)
            return WebhookTest(webhook=str(hook), taken=False, problem=str(error), flow_run=None)
        runtime.telemetry.delivery(str(hook), is_delivered=True)
        return WebhookTest(webhook=str(hook), taken=True, problem=None, flow_run=run)

    test = AlarmTest(webhooks=await asyncio.gather(*map(attempt, hooks)))
    return Response(test.model_dump_json(), media_type=json_body.JSON)
