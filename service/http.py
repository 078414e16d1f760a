"""uvicorn's HTTP protocol, with a limit on the time in which the head of a request must arrive, and answers sent whole.

uvicorn itself waits for ever: whoever opens connections and sends a byte now and then holds them all. And it sends the
head of an answer and its body by a call each, which wakes the caller twice.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from service.errors import error_response

HEAD_SECONDS = 15.0
"""From the opening of a connection, or the first byte after an answer, to the empty line that ends the head."""


class Protocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """Answers 408 and hangs up when a head does not come to its end; bodies have a limit of their own (`Envelope`)."""

    seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(cast(asyncio.Transport, Joining(transport, self.loop)))
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # a whole head has come
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        message = f"the head of the request did not arrive within {self.seconds:g} s; send it faster"
        body = bytes(error_response({"path": ""}, 408, "head_too_slow", message).body)
        head = f"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()


class Joining:
    """A transport that holds the head of an answer until its body comes, at most for one round of the event loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            self._head, parts = b"", [self._head, data]
            self._transport.writelines(parts)
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""
