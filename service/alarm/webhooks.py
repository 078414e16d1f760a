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
GROUP = "group-alarm"
"""Types of messages."""


class WebhookError(Exception):
    """The message was not accepted. The error names webhook and reason, without the URL's path and password."""


def message(
    kind: str,
    model: str | None,
    version: str | None,
    reading: str,
    *,
    address: str,
    id_: str = "",
    numbers: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a message of a kind. Without `id_` it gets an id of its own, and is another message each time."""
    query = f"?model={quote(model, safe='')}&version={quote(version, safe='')}" if model and version else ""
    return {
        "type": kind,
        "id": id_ or secrets.token_hex(16),
        "model": model,
        "version": version,
        **(numbers or {}),
        "reading": reading,
        "report_url": f"{address}/calibration-report{query}",
    }


def id_of(*content: object) -> str:
    """Return the id of a message. It is the same however often, and by whichever worker, the message is sent."""
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def news(
    model: str, version: str, null: str, numbers: dict[str, Any], *, reading: str, address: str, kind: str = ALARM
) -> dict[str, Any]:
    """Return the message of an alarm."""
    id_ = id_of(model, version, null, numbers["fired_at"], numbers["fired_after"])
    return message(kind, model, version, reading, address=address, id_=id_, numbers={"null": null, **numbers})


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
