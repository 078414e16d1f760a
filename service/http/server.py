"""uvicorn's server with a shutdown that loses no request: it also answers connections that wait to be accepted."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from typing import Any

import uvicorn

from service.http.connections import ConnectionLimits, ConnectionsState
from service.http.limits import LimitedHTTP

ACCEPTS = 8
"""Connections that a single worker accepts per turn of the event loop. libuv accepts one per listening socket.

Several workers accept one each, so that one of them cannot take all connections of a burst. With eight, the other of
two workers got less than a twentieth of the load in 4 of 14 runs with 32 clients. With one, it got at least a fourth.
"""
ACCEPT_SECONDS = 1.0
"""Time for which a server that shuts down accepts waiting connections while others keep connecting."""


class Config(uvicorn.Config):
    """uvicorn's configuration with our limits on connections."""

    def __init__(self, app: Any, *, limits: ConnectionLimits | None = None, **options: Any) -> None:
        """Take uvicorn's `options` and our limits on connections."""
        super().__init__(app, **{"http": LimitedHTTP, **options})
        self.limits = limits or ConnectionLimits()


class Server(uvicorn.Server):
    """Server with limits on its connections and a shutdown that loses no request."""

    server_state: ConnectionsState

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.server_state = ConnectionsState(config.limits)
        self._listening: list[socket.socket] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets. The server owns them from now on."""
        given = sockets or []
        for one in given:
            # A copy inherits its socket's timeout, but blocking is one flag for all copies in all processes. So a
            # worker that copied a blocking socket made another, which was serving, wait in accept() for ever.
            one.setblocking(False)
        copies = ACCEPTS - 1 if self.config.workers == 1 else 0
        self._listening = [*given, *(one.dup() for one in given for _ in range(copies))]
        await super().startup(self._listening or None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept waiting connections, answer the received requests, close all connections.

        The system accepts connections before the server does. If the listening socket were closed first, the system
        would reset the waiting connections and lose their requests.

        One of several workers leaves the queue as it is: the others may go on. If all end, their parent narrows it.
        """
        self.server_state.ending = True
        if self._listening and self.config.workers == 1:
            narrow(self._listening[0])
        deadline = time.monotonic() + ACCEPT_SECONDS
        while self._listening and select.select(self._listening, [], [], 0)[0] and time.monotonic() < deadline:
            await asyncio.sleep(0)
        await super().shutdown(self._listening)


def narrow(listening: socket.socket) -> None:
    """Let the system's queue of a socket take one new connection at a time, in all processes that share the socket.

    Otherwise clients that reconnect without pause fill the queue as fast as an ending server empties it, and those in
    it at the end are reset. The system ignores other clients' attempts, lets them try again after a second, and then
    refuses them. Connections that are in the queue already stay in it.
    """
    listening.listen(0)
