"""Transport of one connection: joined writes, flow control, and the bytes in the kernel's queues."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl

from service.errors import ServiceError
from service.http import error_answers

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None  # type: ignore[assignment]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JOINED_BYTES = 64 * 1024
"""Size in bytes of a body from which copying it behind its head takes longer than sending another packet."""


def unread(transport: asyncio.Transport) -> int:
    """Return the number of received bytes that are not read yet."""
    return _queued_bytes(transport, "FIONREAD")


def unsent(transport: asyncio.Transport) -> int:
    """Return the number of written bytes that the client has not acknowledged yet."""
    return transport.get_write_buffer_size() + _queued_bytes(transport, "TIOCOUTQ")


def _queued_bytes(transport: asyncio.Transport, queue: str) -> int:
    """Return the number of bytes in one of a socket's two kernel queues; 0 if the system does not tell."""
    connection = transport.get_extra_info("socket")
    if fcntl is None or connection is None:
        return 0
    with contextlib.suppress(OSError):  # closed meanwhile
        return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), getattr(termios, queue), b"\0" * 4))[0])
    return 0


def closing_answer(scope: Scope, error: ServiceError) -> bytes:
    """Return the encoded answer to an error that closes the connection."""
    answer = error_answers.response(scope, error)
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


class ReadWatch:
    """Watches whether a client reads its answer."""

    def __init__(self, transport: asyncio.Transport, seconds: float, give_up: Callable[[], None]) -> None:
        """Watch a transport. `give_up` is called when the client has read nothing for `seconds`."""
        self._transport, self._seconds, self._give_up = transport, seconds, give_up
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start watching."""
        self._unsent = unsent(self._transport)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if unsent(self._transport) < self._unsent:
            self.begin()
        else:
            self._give_up()


class AnswerTransport:
    """Transport of one answer that sends the head together with the beginning of the body.

    Two writes would be two packets, which wake the client twice: 4% of the processor time per image with 32 clients.
    Writes after the client has disconnected are discarded.
    """

    __slots__ = ("_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._head: bytes | None = None
        """Head that waits for the body; b"" after it is written."""
        self._transport, self.is_closing = transport, transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is None and data != CONTINUE:
            self._head = data
        elif self._head and len(data) < JOINED_BYTES:
            data, self._head = self._head + data, b""
            self._write(data)
        else:
            self.flush()
            self._write(data)

    def write_answer(self, head: bytes, body: bytes) -> None:
        """Write a whole answer."""
        self._head = b""
        if len(body) < JOINED_BYTES:
            self._write(head + body)
        else:
            self._write(head)
            self._write(body)

    def flush(self) -> None:
        """Write a head without a body."""
        if self._head:
            self._write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def _write(self, data: bytes) -> None:
        if not self.is_closing():  # uvloop raises RuntimeError for a closed transport
            self._transport.write(data)


class Flow(FlowControl):
    """Flow control that resumes reading only if no earlier bytes wait, even if the application asks for it."""

    def __init__(self, transport: asyncio.Transport, waits: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._waits = waits

    def resume_reading(self) -> None:
        if self.read_paused and not self._waits():
            super().resume_reading()
