"""uvicorn's server, which at its end answers every request that had come, also those that nobody had accepted yet."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from typing import Any

import uvicorn

from service.http.connections import Limits, State
from service.http.limits import LimitedHTTP

ACCEPTS = 8
"""Connections that are accepted in one turn of the event loop: libuv accepts one of each listening socket."""
ACCEPT_SECONDS = 1.0
"""Time for which a server that ends accepts what waits, where others go on connecting."""


class Config(uvicorn.Config):
    """uvicorn's configuration with limits of connections."""

    def __init__(self, app: Any, *, limits: Limits | None = None, **options: Any) -> None:
        """Take uvicorn's `options`, and limits of connections."""
        super().__init__(app, **{"http": LimitedHTTP, **options})
        self.limits = limits or Limits()


class Server(uvicorn.Server):
    """A server whose connections have limits, and which ends without losing a request."""

    server_state: State

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.server_state = State(config.limits)
        self._listening: list[socket.socket] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets, which are the server's own from now on."""
        given = sockets or []
        for one in given:
            # A copy takes its socket's timeout over, and whether it blocks is one flag of all copies in all processes:
            # a worker that copied a blocking one made another, which was serving, wait in accept() for ever.
            one.setblocking(False)
        self._listening = [*given, *(one.dup() for one in given for _ in range(ACCEPTS - 1))]
        await super().startup(self._listening or None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept what waits, answer what has come, close all connections.

        The system accepts a connection before the server does. It resets those that still wait when the listening
        socket is closed, and with them the requests that have come on them.
        """
        self.server_state.ending = True
        deadline = time.monotonic() + ACCEPT_SECONDS
        while self._listening and select.select(self._listening, [], [], 0)[0] and time.monotonic() < deadline:
            await asyncio.sleep(0)
        await super().shutdown(self._listening)
