"""One attempt to deliver an alarm: a JSON body to a URL, or a run of a Prefect deployment.

service/alarm/watch.py repeats failed attempts and records the deliveries in the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from service.settings import DEPLOYMENT, Webhook

if TYPE_CHECKING:
    import httpx

SEND_SECONDS = 10.0
"""Time within which a webhook must answer."""
ALARM, TRIAL, UNDECIDED = "calibration-alarm", "calibration-alarm-test", "recalibration-undecided"
BROKEN, QUESTION, UNCOVERED = "promise-broken", "question-notice", "sets-do-not-cover"
"""Types of messages."""


class WebhookError(Exception):
    """The message was not accepted. The error names webhook and reason, without the URL's path and password."""


def news(
    model: str,
    version: str,
    null: str,
    numbers: dict[str, Any],
    *,
    reading: str,
    address: str,
    type_: str = ALARM,
) -> dict[str, Any]:
    """Return the message of an alarm. Its id is the same however often, and by whichever worker, it is sent."""
    content = repr((model, version, null, numbers["fired_at"], numbers["fired_after"]))
    return {
        "type": type_,
        "id": hashlib.sha256(content.encode()).hexdigest()[:32],
        "model": model,
        "version": version,
        "null": null,
        **numbers,
        "reading": reading,
        "report_url": _report_url(address, model, version),
    }


def trial_news(model: str, version: str, *, address: str) -> dict[str, Any]:
    """Return a test message. Each has an id of its own."""
    return {
        "type": TRIAL,
        "id": secrets.token_hex(16),
        "model": model,
        "version": version,
        "reading": "This is a test message. No alarm has fired.",
        "report_url": _report_url(address, model, version),
    }


def question_news(
    model: str, version: str, id_: str, numbers: dict[str, Any], *, reading: str, address: str
) -> dict[str, Any]:
    """Return the message of a notice about a question. Its id is the same, however often it is sent."""
    return {
        "type": QUESTION,
        "id": id_,
        "model": model,
        "version": version,
        **numbers,
        "reading": reading,
        "report_url": _report_url(address, model, version),
    }


def undecided_news(model: str | None, version: str | None, reading: str, *, address: str) -> dict[str, Any]:
    """Return the message of a recalibration that ended without a decision. Each has an id of its own."""
    return {
        "type": UNDECIDED,
        "id": secrets.token_hex(16),
        "model": model,
        "version": version,
        "reading": reading,
        "report_url": _report_url(address, model, version) if model and version else f"{address}/calibration-report",
    }


def _report_url(address: str, model: str, version: str) -> str:
    return f"{address}/calibration-report?model={quote(model, safe='')}&version={quote(version, safe='')}"


async def send(webhook: Webhook, body: dict[str, Any]) -> str | None:
    """Send a message. Return the id of the run that it has started, if the webhook starts runs.

    Raises:
        WebhookError: The webhook did not answer 2xx within ten seconds.
    """
    try:
        async with asyncio.timeout(SEND_SECONDS), await asyncio.to_thread(_client) as client:
            return await _send(client, webhook, body)
    except TimeoutError:
        raise WebhookError(f"{webhook} did not answer within {SEND_SECONDS:g} s") from None


async def _send(client: httpx.AsyncClient, webhook: Webhook, body: dict[str, Any]) -> str | None:
    import httpx

    try:
        if webhook.starts_run:
            return await _start_run(client, webhook, body)
        _check(webhook, await client.post(webhook.url, json=body, headers={"Idempotency-Key": body["id"]}))
    except httpx.TimeoutException:
        raise TimeoutError from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise WebhookError(f"{webhook} cannot be reached: {str(error) or type(error).__name__}") from None
    return None


def _client() -> httpx.AsyncClient:
    """Return a client. Call it in a thread: importing httpx and reading the certificates takes .2 s."""
    import httpx

    return httpx.AsyncClient(timeout=SEND_SECONDS)


async def _start_run(client: httpx.AsyncClient, webhook: Webhook, body: dict[str, Any]) -> str:
    """Start a run, at most one per idempotency key. A test starts a run that only checks its environment."""
    deployment = quote(_id(webhook, await client.get(webhook.url)), safe="")
    parameters = {"model": body["model"], "version": body["version"], "reason": body["reading"]}
    if body["type"] == TRIAL:
        parameters["dry_run"] = True
    run = {"parameters": parameters, "idempotency_key": body["id"]}
    url = f"{webhook.url.partition(DEPLOYMENT)[0]}/deployments/{deployment}/create_flow_run"
    return _id(webhook, await client.post(url, json=run))


def _id(webhook: Webhook, answer: httpx.Response) -> str:
    """Return the id of the deployment or run in Prefect's answer."""
    _check(webhook, answer)
    try:
        return str(answer.json()["id"])
    except (ValueError, KeyError, TypeError):
        raise WebhookError(f"{webhook} does not answer like a Prefect server; give the URL of its API") from None


def _check(webhook: Webhook, answer: httpx.Response) -> None:
    if not answer.is_success:
        raise WebhookError(f"{webhook} answered {answer.status_code} to {answer.request.method}")
