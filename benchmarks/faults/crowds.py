"""Many simultaneous connections from different addresses: pipelined requests, and clients that never read."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.faults.process import DEAD, Service
from benchmarks.faults.watch import Watched, watched

ONE = ("127.0.0.2",)
MANY = tuple(f"127.0.0.{k}" for k in range(2, 12))
GOOD = b"HTTP/1.1 200 "


@dataclass(frozen=True)
class Kind:
    """The behaviour of a crowd."""

    connections: int
    requests: int
    path: str
    reads: bool = True


KINDS = {
    "pipelined, 100 connections": Kind(100, 100, "/health/live"),
    "pipelined, 300 connections": Kind(300, 100, "/health/live"),
    "the document of the API": Kind(300, 1, "/openapi.json"),
    "never read": Kind(300, 20, "/openapi.json", reads=False),
}


@dataclass
class Crowd:
    """The result of one crowd."""

    answers: int = 0
    closed: int = 0
    """Number of connections that the service closed."""
    seconds: float = 0.0
    watched: Watched = field(default_factory=Watched)


def crowd(service: Service, kind: Kind, seconds: float) -> Crowd:
    """Send what the kind requires, and stay until everything is answered or closed, or the time is over.

    The probe opens a new connection each time. A crowd that never reads keeps its connections open for the same time.
    """
    found = Crowd()
    with watched(service, fresh=True) as found.watched, connected(service, kind.connections) as clients:
        began = time.monotonic()
        _ask(clients, kind, began + seconds, found)
        found.seconds = round(time.monotonic() - began, 1)
    return found


@contextlib.contextmanager
def connected(service: Service, count: int, addresses: Sequence[str] = ONE) -> Iterator[list[socket.socket]]:
    """Open connections spread over the client's addresses, and close them with the block."""
    where = urllib.parse.urlsplit(service.url)
    with contextlib.ExitStack() as open_:
        clients = []
        for k in range(count):
            client = open_.enter_context(socket.socket())
            client.bind((addresses[k % len(addresses)], 0))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect((where.hostname or "", where.port or 0))
            clients.append(client)
        yield clients


@contextlib.contextmanager
def few_files(most: int) -> Iterator[None]:
    """Limit the open files of processes that start in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def recovery(service: Service, connections: int, seconds: float) -> float:
    """Return the seconds until new connections are answered after a crowd of many addresses that never reads.

    The crowd stays for `seconds`.
    """
    kind = Kind(connections, 20, "/openapi.json", reads=False)
    with connected(service, connections, MANY) as clients:
        _ask(clients, kind, time.monotonic() + seconds, Crowd())
    left, good = time.monotonic(), 0
    while good < 10:
        try:
            with service.client(timeout=10) as client:
                good = good + 1 if client.get("/health/live").status == 200 else 0
        except DEAD:
            good = 0
            time.sleep(0.05)
    return round(time.monotonic() - left, 2)


def _ask(clients: list[socket.socket], kind: Kind, deadline: float, found: Crowd) -> None:
    request = f"GET {kind.path} HTTP/1.1\r\nhost: x\r\n\r\n".encode() * kind.requests
    left, ends = dict.fromkeys(clients, memoryview(request)), dict.fromkeys(clients, b"")
    with selectors.DefaultSelector() as ready:
        reading = selectors.EVENT_READ if kind.reads else 0
        for client in clients:
            ready.register(client, selectors.EVENT_WRITE | reading)
        while time.monotonic() < deadline and found.closed < len(clients):
            for key, events in ready.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                client = key.fileobj
                try:
                    if events & selectors.EVENT_WRITE:
                        left[client] = left[client][client.send(left[client]) :]
                        if not left[client]:
                            ready.modify(client, reading) if reading else ready.unregister(client)
                    if events & selectors.EVENT_READ:
                        part = client.recv(1 << 16)
                        found.answers += (ends[client] + part).count(GOOD)
                        ends[client] = part[1 - len(GOOD) :]
                        if not part:
                            raise ConnectionResetError
                except BlockingIOError:
                    continue
                except OSError:
                    found.closed += 1
                    ready.unregister(client)
            if found.answers >= len(clients) * kind.requests:
                break
