"""A small application behind the service's own server, over real sockets, and clients that are as blunt as possible."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.connections import LOST, ConnectionLimits
from service.http.limits import LimitedHTTP
from service.http.server import Config, Server
from tests.service.hooks import until

Address = tuple[str, int]
GET = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body once all of it has come, and the names of its headers; /early begins before that."""
    if scope["path"] == "/early":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "more_body": True})
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    if scope["path"] != "/early":
        names = b",".join(name for name, _ in scope["headers"])
        headers = [(b"content-length", str(len(body)).encode()), (b"x-names", names[:1_000])]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Running:
    """A server in a thread of its own."""

    def __init__(self, server: Server, address: Address, thread: threading.Thread) -> None:
        self.server, self.address, self.thread = server, address, thread
        self.lost: Counter[str] = Counter()

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections)


@contextmanager
def running(
    app: ASGIApp = echo,
    limits: ConnectionLimits | None = None,
    http: type[LimitedHTTP] = LimitedHTTP,
    listening: socket.socket | None = None,
    workers: int = 1,
) -> Iterator[Running]:
    """Serve `app` until the block ends; on `listening`, which is closed then, or on a free port.

    `workers` is the number of workers that it believes to be one of.
    """
    socket_ = listening or socket.create_server(("127.0.0.1", 0))
    lost: Counter[str] = Counter()

    async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        scope["state"][LOST] = lambda reason: lost.update([reason])
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    options = {"http": http, "workers": workers, "log_level": "error", "timeout_graceful_shutdown": 8}
    server = Server(Config(with_state, limits=limits, **options))
    thread = threading.Thread(target=server.run, args=([socket_],))
    thread.start()
    until(lambda: server.started)
    found = Running(server, socket_.getsockname()[:2], thread)
    found.lost = lost
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join()


def received(client: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    client.settimeout(60)
    content = b""
    try:
        while part := client.recv(1 << 16):
            content += part
    except ConnectionResetError:
        pass
    return content
