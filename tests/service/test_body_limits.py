"""The least rate of a body that is stored as it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from service.errors import ServiceError
from service.http.body_limits import LimitedBody
from service.settings import Settings


def read(size: int, count: int, *, streamed: bool = True, storing: float = 0.0, **limits: Any) -> int:
    """The bytes of a body that comes in `count` parts of `size` bytes, one every 10 ms."""

    async def run() -> int:
        left, taken = count, 0

        async def receive() -> Message:
            nonlocal left
            await asyncio.sleep(0.01)
            left -= 1
            return {"type": "http.request", "body": bytes(size), "more_body": left > 0}

        settings = Settings(**{"body_seconds": 0.2, "body_rate": 1000, **limits})
        body = LimitedBody(receive, {b"transfer-encoding": b"chunked"}, settings, is_streamed=streamed)
        while not body.complete:
            taken += len((await body.receive())["body"])
            await asyncio.sleep(storing)
        return taken

    return asyncio.run(run())


def test_a_body_that_trickles_is_refused() -> None:
    with pytest.raises(ServiceError, match=r"arrived at [\d.]+ bytes/s for 0\.\d+ s; the least is 1,000") as caught:
        read(1, 1000)
    assert (caught.value.status, caught.value.code) == (408, "body_too_slow")


def test_a_body_that_keeps_coming_is_taken_however_long() -> None:
    assert read(100, 60) == 6000
    assert read(1, 60, body_rate=0) == 60


def test_the_time_of_storing_does_not_count() -> None:
    assert read(40, 12, storing=0.1) == 480


def test_a_short_slow_body_is_taken() -> None:
    assert read(1, 5) == 5
