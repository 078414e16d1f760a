"""uvicorn's HTTP protocol, with a limit on the time in which the head of a request must arrive.

uvicorn itself waits for ever: whoever opens connections and sends a byte now and then holds them all.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from service.errors import error_response

HEAD_SECONDS = 15.0
"""From the opening of a connection, or the first byte after an answer, to the empty line that ends the head."""


class LimitedHead(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """Answers 408 and hangs up when a head does not come to its end; bodies have a limit of their own (`Envelope`)."""

    seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
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
