"""The protocol's short ways: they send what uvicorn's own ways send."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from types import SimpleNamespace
from typing import Any

import httptools
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from service.http.lean import LeanCycle, LeanHTTP, cycle_of
from service.http.transport import JOINED_BYTES, AnswerTransport, Flow
from tests.service.echo_server import running
from tests.service.hooks import until

DEFAULTS = [(b"date", b"today"), (b"server", b"uvicorn")]


class Written:
    """Transport that keeps what is written."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def cycle(*, keeps: bool = True, waits: bool = False) -> tuple[LeanCycle, Written]:
    transport: Any = Written()
    protocol: Any = SimpleNamespace(
        scope={"method": "POST"},
        flow=Flow(transport, lambda: False),
        logger=logging.getLogger("uvicorn.error"),
        server_state=SimpleNamespace(default_headers=DEFAULTS),
        parser=SimpleNamespace(should_keep_alive=lambda: keeps),
        expect_100_continue=waits,
    )
    answer = AnswerTransport(transport)
    return LeanCycle(protocol, answer, answer.flush), transport


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("size", [0, 9, JOINED_BYTES])
@pytest.mark.parametrize("more", [[], [(b"connection", b"close")]])
def test_a_whole_answer_is_what_uvicorn_sends_in_two_messages(
    keeps: bool, size: int, more: list[tuple[bytes, bytes]]
) -> None:
    headers, body = [(b"content-length", b"%d" % size), (b"x-request-id", b"a"), *more], bytes(size)

    async def run() -> None:
        (short, ours), (long, theirs) = cycle(keeps=keeps), cycle(keeps=keeps)
        short.answer(200, list(headers), body)
        await long.send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        await long.send({"type": "http.response.body", "body": body})
        assert b"".join(ours.data) == b"".join(theirs.data)
        assert ours.closed == theirs.closed == (not keeps or bool(more))
        assert short.response_complete
        assert short.keep_alive == long.keep_alive
        with pytest.raises(RuntimeError, match="begun"):
            short.answer(200, list(headers), body)

    asyncio.run(run())


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-length", b"4")],
        [(b"content-length", b"3"), (b"x-a", b"b\r\nx-c: d")],
        [(b"content-length", b"3"), (b"x a", b"b")],
    ],
)
def test_headers_that_do_not_fit_are_not_sent(headers: list[tuple[bytes, bytes]]) -> None:
    async def run() -> None:
        one, written = cycle()
        with pytest.raises(RuntimeError, match="3 bytes"):
            one.answer(200, headers, b"abc")
        assert not written.data

    asyncio.run(run())


def test_a_body_is_taken_whole_or_received_in_parts() -> None:
    async def run() -> None:
        one, _ = cycle()
        one.body += b"ab"
        one.message_event.set()
        assert one.take_body() is None
        one.more_body = False
        assert one.take_body() == b"ab"
        assert one.take_body() is None
        one.disconnected = True
        one.message_event.set()
        assert await one.receive() == {"type": "http.disconnect"}
        waiting, _ = cycle(waits=True)  # the client sends its body after "100 Continue", which `receive` sends
        waiting.more_body = False
        waiting.message_event.set()
        assert waiting.take_body() is None
        assert cycle_of(one.receive) is one
        assert cycle_of(len) is None

    asyncio.run(run())


def test_a_client_that_leaves_after_a_large_body_is_noticed() -> None:
    """Such a body pauses reading, and a paused connection reports no end."""
    seen = list[bool]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        one = cycle_of(receive)
        assert one is not None
        while one.take_body() is None and not one.disconnected:
            one.flow.resume_reading()
            await asyncio.sleep(0.001)
        while not one.disconnected and not one.flow.read_paused:
            await asyncio.sleep(0.01)
        seen.append(one.disconnected)

    with running(app) as server, socket.create_connection(server.address) as client:
        size = 2 * HIGH_WATER_LIMIT
        client.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))
        time.sleep(0.1)  # the end must not come together with the body
        client.close()
        until(lambda: bool(seen))
        assert seen == [True]
        until(lambda: server.lost == {"hung_up": 1})


def test_an_idle_connection_is_closed_after_the_time_since_its_last_answer() -> None:
    now, timers, transport = 0.0, list[float](), Written()
    one: Any = LeanHTTP.__new__(LeanHTTP)
    one.loop = SimpleNamespace(time=lambda: now, call_later=lambda seconds, _: timers.append(seconds))
    one.transport, one.timeout_keep_alive, one.timeout_keep_alive_task = transport, 5.0, None
    one.flow, one.pipeline = Flow(transport, lambda: False), []  # type: ignore[arg-type]
    one.server_state = SimpleNamespace(total_requests=0)
    one.on_response_complete()
    assert timers == [5.0]
    one._idle_since = None  # the next request comes at 1, and its answer is complete at 3
    now = 3.0
    one.timeout_keep_alive_task = object()
    one.on_response_complete()
    assert timers == [5.0]
    now = 5.0
    one.timeout_keep_alive_handler()
    assert timers == [5.0, 3.0]
    now = 8.0
    assert not transport.closed
    one.timeout_keep_alive_handler()
    assert transport.closed


def test_a_connection_with_a_request_in_work_is_not_idle() -> None:
    transport = Written()
    one: Any = LeanHTTP.__new__(LeanHTTP)
    one.transport, one._idle_since = transport, None
    one.timeout_keep_alive_handler()
    assert not transport.closed
    assert one.timeout_keep_alive_task is None


def test_bytes_that_are_not_http_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No metric counts them."""
    one: Any = LeanHTTP.__new__(LeanHTTP)
    one.logger, refused = logging.getLogger("lean"), list[str]()
    one.parser, one.send_400_response = httptools.HttpRequestParser(one), refused.append
    one.data_received(b"\0\1\2")
    assert caplog.messages == ["Invalid HTTP request received."]
    assert len(refused) == 1
