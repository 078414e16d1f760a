"""uvicorn's HTTP protocol with less work per request: half of the event loop's time for an answer was spent there.

It leaves out what the service does not use (WebSockets, an access log, a limit of uvicorn's own on requests at once).
A body that has arrived is handed over without an await, and an answer is written by one call.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.http.transport import AnswerTransport

KEPT_URL = 256
"""Longest URL in bytes whose parts are kept for the next request with it."""
Headers = list[tuple[bytes, bytes]]


class LeanCycle(RequestResponseCycle):
    """A request and its answer."""

    transport: AnswerTransport  # type: ignore[assignment]
    disconnected = response_started = response_complete = False
    more_body = True
    chunked_encoding = None
    expected_content_length = 0
    access_log = False

    def __init__(self, protocol: LeanHTTP, answer: AnswerTransport, on_response: Callable[..., None]) -> None:
        # uvicorn's own constructor stores 20 fields; most are defaults, which the class has above.
        self.scope, self.flow, self.logger = protocol.scope, protocol.flow, protocol.logger
        self.transport, self.on_response = answer, on_response
        self.default_headers = protocol.server_state.default_headers
        self.message_event = asyncio.Event()
        self.keep_alive = protocol.parser.should_keep_alive()
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.body = bytearray()

    def take_body(self) -> bytes | None:
        """Return the whole body if it has arrived and nobody has received a part of it, else None."""
        if self.more_body or self.waiting_for_100_continue or self.disconnected or not self.message_event.is_set():
            return None
        body, self.body = bytes(self.body), bytearray()
        self.message_event.clear()
        if len(body) > HIGH_WATER_LIMIT:  # it has paused reading, and a client that leaves would not be noticed
            self.flow.resume_reading()
        return body

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer. `headers` has a content-length; call this only if `flow.write_paused` is false.

        Raises:
            RuntimeError: An answer has begun, the content-length is not that of the body, or a header is invalid.
        """
        if self.disconnected:
            return
        if self.response_started:
            raise RuntimeError("the answer has begun already")
        self.response_started, self.waiting_for_100_continue = True, False
        length, closes, parts, names, values = b"", False, [STATUS_LINE[status]], list[bytes](), list[bytes]()
        for name, value in [*self.default_headers, *headers]:
            parts += (name, b": ", value, b"\r\n")
            names.append(name)
            values.append(value)
            if name == b"content-length":
                length = value
            elif name == b"connection":
                closes = closes or value == b"close"
        wrong = HEADER_RE.search(b"".join(names)) or HEADER_VALUE_RE.search(b"".join(values))
        if wrong or length != b"%d" % len(body):
            raise RuntimeError(f"the headers do not fit a body of {len(body)} bytes, or are invalid: {headers}")
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        self.transport.write_answer(b"".join(parts), body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def cycle_of(receive_or_send: object) -> LeanCycle | None:
    """Return the cycle whose `receive` or `send` an ASGI application got; None on another server."""
    cycle = getattr(receive_or_send, "__self__", None)
    return cycle if isinstance(cycle, LeanCycle) else None


class LeanHTTP(HttpToolsProtocol):
    """Protocol with a `LeanCycle` per request, and one timer per connection for the time between requests."""

    _idle_since: float | None = None
    """Time on the loop's clock since which no request has come; None while one is received or answered."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._asgi = {"version": self.asgi_version, "spec_version": "2.3"}

    def data_received(self, data: bytes) -> None:
        self._idle_since = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()

    _in_head = False
    """Whether a head has begun but is not complete."""

    def on_message_begin(self) -> None:
        self._in_head = True
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self.scope = {
            "type": "http",
            "asgi": self._asgi,  # type: ignore[typeddict-item]
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "root_path": self.root_path,
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    def on_headers_complete(self) -> None:
        scope, parser, url = self.scope, self.parser, self.url
        scope["method"] = parser.get_method().decode("ascii")
        if (http_version := parser.get_http_version()) != "1.1":
            scope["http_version"] = http_version
        path, raw_path, query = (_kept_parts if len(url) <= KEPT_URL else _parts)(url)
        scope["path"], scope["query_string"] = self.root_path + path, query
        scope["raw_path"] = self.root_path.encode("ascii") + raw_path if self.root_path else raw_path
        before, answer = self.cycle, AnswerTransport(self.transport)
        self.cycle = cycle = LeanCycle(self, answer, functools.partial(self._finish_answer, answer))
        if http_version == "1.0":
            cycle.keep_alive = False
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        if (cycle := self.cycle).response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if not (cycle := self.cycle).response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _finish_answer(self, answer: AnswerTransport) -> None:
        answer.flush()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait_for_request(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. A timer per connection costs less than one that each request sets and cancels."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None or self.transport.is_closing():
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wait_for_request(left)
        else:
            self.transport.close()

    def _wait_for_request(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)


def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """Return a URL's path, the path as it was sent, and the query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


_kept_parts = functools.lru_cache(256)(_parts)
