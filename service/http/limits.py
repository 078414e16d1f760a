"""uvicorn's HTTP protocol, with limits on everything that a connection sends besides request bodies.

uvicorn waits for ever for the end of a head, concatenates it at any length, and keeps reading while requests wait for
earlier answers (pipelining). So one connection could block the service or fill its memory.

The parser is always httptools. uvicorn's other parser, h11, needs 12 s for a header of 60,000 spaces, because its
regular expression backtracks over each of them. No limit from outside can prevent that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.errors import ServiceError
from service.http.connections import ANSWERED_EXCESS, LOST, ConnectionLimits, ConnectionsState, too_many
from service.http.lean import LeanHTTP
from service.http.transport import Flow, ReadWatch, closing_answer, unread
from service.telemetry.metrics import Lost

HEAD_BYTES = 64 * 1024
"""Largest size of a request line with its headers, in bytes. A body may add as many for trailers and extensions."""
FIELD_BYTES = 32
"""Bytes counted for each header and trailer besides its own, as in HTTP/2: each becomes a tuple of two objects."""
CHUNK_BYTES = 32
"""Bytes of a chunk's size line and line ends that count as data, and so have no limit."""
PIECE, TURN_SECONDS = 16 * 1024, 0.005
"""Bytes that are parsed at once, and time after which other connections have their turn."""
HEAD_END = b"\r\n\r\n"
LINGER_BYTES, LINGER_SECONDS = 4 * 1024**2, 2.0
"""Bytes and time for which data are still read and discarded after a refusal.

A connection that is closed while the client sends is reset, and the client may never see the answer.
"""


class LimitedHTTP(LeanHTTP):
    """Protocol that answers 408 to a head that does not end, 431 to one that is too large, and 400 to other protocols.

    Earlier requests on the same connection are answered first; then the connection is closed. Bodies have limits of
    their own (`Envelope`). A client that reads nothing of its answer is disconnected, and so is one whose address has
    too many connections.
    """

    server_state: ConnectionsState
    _timer: asyncio.TimerHandle | None = None
    _held = memoryview(b"")
    """Received bytes that are not parsed yet, because earlier requests wait for their answers."""
    _overhead = 0
    """Bytes received since the head began or ended, without those of the body."""
    _in_body = False
    """Whether a head is complete but its body is not."""
    _unanswered = 0
    """Number of requests whose head is complete but whose answer is not."""
    _refusal: ServiceError | None = None
    _hung_up = False
    """Whether the service has ended the connection."""
    _discarded = 0
    _running: RequestResponseCycle | None = None
    """Request that is being answered."""
    _ending = False
    """Whether the connection closes after the received requests are answered."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits: ConnectionLimits = self.config.limits  # type: ignore[attr-defined]  # our Server has our Config
        self._lost: Callable[[Lost], None] = self.app_state.get(LOST, lambda reason: None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that `pause_writing` is called whenever the client falls behind
        self.flow = Flow(transport, self._waits)
        self._taking = ReadWatch(transport, self._limits.write_seconds, self._cut_off)
        self.server_state.turns.arrived = True
        self._host = self.client[0] if self.client else ""
        left = self.server_state.addresses.enter(self._host)
        if left < 0:
            self._lost("too_many")
        if left < -ANSWERED_EXCESS:
            transport.abort()
        elif left < 0:
            self._refuse(too_many(self._host, self._limits.connections))
        else:
            self._watch()
            if self.server_state.ending:
                self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.server_state.addresses.leave(self._host)
        self._held = memoryview(b"")
        self._forget()
        self._unset_keepalive_if_required()
        self._taking.end()
        if self._running is None:
            return
        if not self._running.response_complete:  # uvicorn informs the latest request only
            self._running.disconnected = True
            self._running.message_event.set()
        closed = self._hung_up or (self._running.response_complete and not self._running.keep_alive)
        if self._unanswered and not closed:
            self._lost("hung_up")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking.begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taking.end()

    def _cut_off(self) -> None:
        self._lost("unread")
        self._hung_up = True
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection after all received requests are answered, including those not read yet."""
        self._ending = True
        self._end()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.transport.abort()
            return
        if not self._held and not self.pipeline and self._beginning(data) == len(data):
            self._parse(data)
        else:
            self._held = memoryview(bytes(self._held) + data if self._held else data)
            self._parse_held()
        if self._timer is not None or not self._unanswered:
            self._watch()
        if self._ending:
            self._end()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._overhead += FIELD_BYTES
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        # The exact size is computed only near the limit, because it is slow. Received bytes may include part of the
        # body.
        if self._overhead > HEAD_BYTES - PIECE and self._head_bytes() > HEAD_BYTES:
            error = _too_large(in_body=False)
            self._refuse(error)
            raise error  # stops the parser
        super().on_headers_complete()
        self._overhead, self._in_head, self._in_body = 0, False, True
        self._unanswered += 1
        self.headers = []  # trailers are not headers of the request, which is already being answered

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._overhead -= CHUNK_BYTES

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._overhead, self._in_body = 0, False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self._unanswered:  # the request waited for earlier ones
            self.server_state.turns.add(partial(self._begin, cycle, app))
        else:
            self._begin(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not self.transport.is_closing():
            self._running = cycle
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        if self._refusal and not self._unanswered and not self.transport.is_closing():
            self._hang_up(self._refusal)
        super().on_response_complete()
        if self.flow.read_paused:
            self._parse_held()
        if self._ending:
            self._end()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP. uvicorn calls this method."""
        message = "this is not an HTTP request; the port accepts http://, not https:// or another protocol"
        self._refuse(ServiceError(400, "invalid_http", message))

    def _beginning(self, data: bytes) -> int:
        """Return how many bytes to parse now: at most PIECE, and at most as many heads as requests may wait."""
        end, most = 0, min(len(data), PIECE)
        for _ in range(self._limits.pipeline_depth):
            if data.find(b"\r", end) < 0:  # in JSON, 40 times faster than a search for four bytes
                return most
            found = data.find(HEAD_END, end)
            if found < 0:
                return most
            end = found + len(HEAD_END)
        return min(end, most)

    def _parse(self, data: bytes) -> None:
        if self._overhead < 0:  # otherwise many small chunks would allow for a huge trailer
            self._overhead = 0
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > HEAD_BYTES:
            self._refuse(_too_large(in_body=self._in_body))

    def _parse_held(self) -> None:
        """Parse received bytes until a request must wait for others, or others have their turn. Then stop reading."""
        began = time.perf_counter()
        while self._held and not self.pipeline and self._refusal is None:
            piece = bytes(self._held[:PIECE])
            size = self._beginning(piece)
            self._held = self._held[size:]
            self._parse(piece[:size])
            if self._held and time.perf_counter() - began > TURN_SECONDS:
                self.loop.call_soon(self._parse_held)
                break
        if self._refusal is not None or self.transport.is_closing():
            self._held = memoryview(b"")
        elif self._is_behind():
            self.flow.pause_reading()
        elif not self._unanswered or len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _is_behind(self) -> bool:
        return bool(self.pipeline or self._held)

    def _waits(self) -> bool:
        return not self._hung_up and (self._refusal is not None or self._is_behind())

    def _head_bytes(self) -> int:
        """Return the size of a complete head, without insignificant spaces."""
        line = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        return line + sum(len(n) + len(v) + len(": \r\n") + FIELD_BYTES for n, v in self.headers) + len("\r\n")

    def _refuse(self, error: ServiceError) -> None:
        """Stop parsing, answer with the error after the earlier answers, and close the connection."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._refusal = error
        self.url = b""
        if self.headers:  # free thousands of unused objects now; otherwise the garbage collector must find them
            self.headers.clear()
        if not self._in_body:
            if not self._unanswered:
                self._hang_up(error)
        elif self._unanswered > 1:  # the request itself waits for earlier ones
            self.pipeline.popleft()
            self._unanswered -= 1
        else:
            begun = self.cycle.response_started
            self.cycle.disconnected = True  # ends the application's work as if the client had disconnected
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
            self._hang_up(None if begun else error)
        if not self._hung_up:
            self.flow.pause_reading()

    def _hang_up(self, error: ServiceError | None) -> None:
        """Send the error, if there is one, and nothing more. Close when the client does, or after LINGER_SECONDS."""
        self._hung_up = True
        self._forget()
        if error:
            self.transport.write(closing_answer(dict(self.scope) if self._in_body else {"path": ""}, error))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _watch(self) -> None:
        if self._unanswered:  # a head is complete
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._limits.head_seconds, self._give_up)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        seconds = self._limits.head_seconds
        message = f"the head of the request did not arrive within {seconds:g} s; send it faster"
        self._refuse(ServiceError(408, "head_too_slow", message))

    def _end(self) -> None:
        """Close the connection if nothing is left to read, or let the last answer close it."""
        if self._refusal is not None or self._in_head or self._held or unread(self.transport):
            return
        if not self._unanswered:
            self.transport.close()
        elif not self._in_body or self._unanswered == 1:
            self.cycle.keep_alive = False  # of the latest request


def _too_large(*, in_body: bool) -> ServiceError:
    if in_body:
        what, cure = "trailers and chunk extensions of the body", "leave them out"
    else:
        what, cure = "request line and headers", "send fewer or shorter ones"
    message = f"{what} have more than {HEAD_BYTES:,} bytes, the limit (each field counts {FIELD_BYTES} more); {cure}"
    return ServiceError(431, "head_too_large", message)
