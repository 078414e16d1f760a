"""uvicorn's HTTP protocol with limits on what a connection may send beside the bodies of its requests.

uvicorn waits for ever for the end of a head, glues it together however long it gets, and reads on while requests wait
for the answers of others (pipelining): one connection could stop the service, or fill its memory.

The parser is httptools and no other: h11, which uvicorn would take in its place, reads one header of 60,000 spaces for
12 s (its pattern of a header goes back over each of them for each of them), and no limit from outside can help.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import ServiceError
from service.http import error_answers

HEAD_SECONDS = 15.0
"""From the opening of a connection, or the first byte after an answer, to the empty line that ends the head."""
HEAD_BYTES = 64 * 1024
"""Bytes of a request line with its headers. A body may have as many again of trailers and chunk extensions."""
FIELD_BYTES = 32
"""Bytes that each header and trailer counts beside its own, as in HTTP/2: a few bytes become a tuple of two objects."""
CHUNK_BYTES = 32
"""Bytes of a chunk's size line and line ends that count as its data do: without limit."""
PIECE, TURN_SECONDS = 16 * 1024, 0.005
"""Bytes that are parsed at once (900 requests without a body at most), and time after which others have their turn."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JOINED_BYTES = 64 * 1024
"""Bytes of a body from which copying it behind its head takes longer than a packet more."""
LINGER_BYTES, LINGER_SECONDS = 4 * 1024**2, 2.0
"""Bytes and time that are still read, and thrown away, after a refusal: a connection that is closed while the client
sends is reset, and the client may never see the answer."""


class LimitedHTTP(HttpToolsProtocol):
    """Answers 408 to a head that does not come to its end, 431 to one that is too large, 400 to what is not HTTP.

    Requests before it on the same connection are answered first; then the connection is closed. Bodies have limits of
    their own (`Envelope`).
    """

    seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _held = memoryview(b"")
    """Bytes that came and are not parsed yet, while requests before them wait for their answers."""
    _overhead = 0
    """Bytes that came since the head began, or ended, less those of the body."""
    _in_body = False
    """Whether a head has come whose body has not ended."""
    _unanswered = 0
    """Requests whose head has come and whose answer is not complete."""
    _refusal: ServiceError | None = None
    _hung_up = False
    _discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self._waits)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._held = memoryview(b"")
        self._forget()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.transport.abort()
            return
        if len(data) <= PIECE and not self._held and not self.pipeline:
            self._parse(data)
        else:
            self._held = memoryview(bytes(self._held) + data if self._held else data)
            self._parse_held()
        if self._timer is not None or not self._unanswered:
            self._watch()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._overhead += FIELD_BYTES
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # The exact size is worth its time only near the limit; what has come may hold a part of the body too.
        if self._overhead > HEAD_BYTES - PIECE and self._head_bytes() > HEAD_BYTES:
            error = _too_large(in_body=False)
            self._refuse(error)
            raise error  # ends the parser
        super().on_headers_complete()
        answer = _Answer(self.transport)
        self.cycle.transport = answer  # type: ignore[assignment]
        self.cycle.on_response = partial(self._answered, answer)
        self._overhead, self._in_body = 0, True
        self._unanswered += 1
        self.headers = []  # trailers are no headers of the request, which is being answered by now

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._overhead -= CHUNK_BYTES

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._overhead, self._in_body = 0, False

    def _answered(self, answer: _Answer) -> None:
        answer.flush()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        if self._refusal and not self._unanswered and not self.transport.is_closing():
            self._hang_up(self._refusal)
        super().on_response_complete()
        if self.flow.read_paused:
            self._parse_held()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that the parser does not understand; uvicorn calls it."""
        message = "what came is not a request of HTTP/1.1; this port takes http://, not https:// or another protocol"
        self._refuse(ServiceError(400, "invalid_http", message))

    def _parse(self, data: bytes | memoryview) -> None:
        if self._overhead < 0:  # else the framing of many small chunks would be a credit for a huge trailer
            self._overhead = 0
        self._overhead += len(data)
        super().data_received(data)  # type: ignore[arg-type]  # httptools reads a view in place
        if self._overhead > HEAD_BYTES:
            self._refuse(_too_large(in_body=self._in_body))

    def _parse_held(self) -> None:
        """Parse what came, until a request waits for others, or others for their turn; then read no more."""
        began = time.perf_counter()
        while self._held and not self.pipeline and self._refusal is None:
            piece, self._held = self._held[:PIECE], self._held[PIECE:]
            self._parse(piece)
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
        """The size of a whole head, without spaces that mean nothing."""
        line = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        return line + sum(len(n) + len(v) + len(": \r\n") + FIELD_BYTES for n, v in self.headers) + len("\r\n")

    def _refuse(self, error: ServiceError) -> None:
        """Parse nothing more, answer with the error once the requests before have their answers, and hang up."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._refusal = error
        self.url = b""
        if self.headers:  # nobody will read them: thousands of objects, until the collector finds this connection
            self.headers.clear()
        if not self._in_body:
            if not self._unanswered:
                self._hang_up(error)
        elif self._unanswered > 1:  # the request itself waits for others
            self.pipeline.popleft()
            self._unanswered -= 1
        else:
            begun = self.cycle.response_started
            self.cycle.disconnected = True  # the application's part ends as if the client had gone
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
            self._hang_up(None if begun else error)
        if not self._hung_up:
            self.flow.pause_reading()

    def _hang_up(self, error: ServiceError | None) -> None:
        """Say the error, if there is one, and nothing more; close when the client does, or soon."""
        self._hung_up = True
        self._forget()
        if error:
            body = bytes(error_answers.response(dict(self.scope) if self._in_body else {"path": ""}, error).body)
            head = (
                f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _watch(self) -> None:
        if self._unanswered:  # a whole head has come
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        message = f"the head of the request did not arrive within {self.seconds:g} s; send it faster"
        self._refuse(ServiceError(408, "head_too_slow", message))


class _Answer:
    """The transport as one answer sees it, whose head goes with the beginning of the body.

    As two writes they are two packets, which wake the client twice: 4% of the processor time of an image at 32 clients.
    """

    __slots__ = ("_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._head: bytes | None = None
        """What waits for the body; b"" once it is written."""
        self._transport, self.is_closing = transport, transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is None and data != CONTINUE:
            self._head = data
        elif self._head and len(data) < JOINED_BYTES:
            data, self._head = self._head + data, b""
            self._transport.write(data)
        else:
            self.flush()
            self._transport.write(data)

    def flush(self) -> None:
        """Write a head that no body follows."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Flow(FlowControl):
    """Does not read on for an application that asks whether its client is there, while earlier bytes wait."""

    def __init__(self, transport: asyncio.Transport, waits: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._waits = waits

    def resume_reading(self) -> None:
        if self.read_paused and not self._waits():
            super().resume_reading()


def _too_large(*, in_body: bool) -> ServiceError:
    if in_body:
        what, cure = "trailers and chunk extensions of the body", "leave them out"
    else:
        what, cure = "request line and headers", "send fewer or shorter ones"
    message = f"{what} have more than {HEAD_BYTES:,} bytes, the limit (each field counts {FIELD_BYTES} more); {cure}"
    return ServiceError(431, "head_too_large", message)
