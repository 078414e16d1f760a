"""Panics: exceptions that are no Exception, as libraries in Rust raise them, are answered and end nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.http.envelope import Envelope
from service.models.batching import Batcher, Inline
from service.models.lanes import Lanes
from service.settings import Settings
from service.telemetry.metrics import Telemetry

Calls = list[list[int]]


class PanicError(BaseException):
    """As pyo3_runtime.PanicException."""


def answered(error: BaseException, path: str) -> list[Message]:
    """What the edge sends where the application raises the error."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    async def run() -> list[Message]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": []}
        await Envelope(app, Telemetry(), Settings(), {})(scope, receive, send)
        return sent

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/predict", "/v2/models/x/infer"])
def test_a_panic_is_answered_as_any_fault_is(path: str) -> None:
    start, body = answered(PanicError("index out of bounds"), path)
    assert start["status"] == 500 and (b"content-type", b"application/json") in start["headers"]
    error = json.loads(body["body"])["error"]
    message = error if path.startswith("/v2") else error["message"]
    assert "report it with the request id" in message and "bounds" not in message


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_the_work_from_outside_is_passed_on(ending: type[BaseException]) -> None:
    with pytest.raises(ending):
        answered(ending(), "/predict")


def lanes(score: Callable[..., Calls], finish: Callable[..., Any]) -> Batcher[list[int], Calls, list[int]]:
    return Lanes(score, finish, max_batch=8, max_waiting=50, noun="image")


def inline(score: Callable[..., Calls], finish: Callable[..., Any]) -> Batcher[list[int], Calls, list[int]]:
    return Inline(score, finish, max_batch=8, max_waiting=50, noun="image")


@pytest.mark.parametrize("make", [lanes, inline])
@pytest.mark.parametrize("where", ["score", "finish"])
async def test_a_queue_survives_a_panic_of_one_request(make: Callable[..., Any], where: str) -> None:
    def score(calls: Calls, alone: bool) -> Calls:
        if where == "score" and [13] in calls:
            raise PanicError
        return [[2 * value for value in call] for call in calls]

    async def finish(scored: Calls) -> Calls:
        if where == "finish" and [26] in scored:
            raise PanicError
        return scored

    batcher = make(score, finish)
    batcher.start()
    room = batcher._room
    for _ in range(room + 1):
        outcomes = await asyncio.gather(*(batcher.submit([k]) for k in (1, 13, 2)), return_exceptions=True)
        assert isinstance(outcomes[1], PanicError)
        if where == "score":
            assert (outcomes[0], outcomes[2]) == ([2], [4])
        assert await asyncio.wait_for(batcher.submit([3]), 10) == [6]
    await batcher.close()
    assert batcher._room == room
