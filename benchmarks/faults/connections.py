"""Clients that disconnect in the middle of a body, and clients that never finish one."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

from benchmarks.faults.process import Service

ENDINGS = ("fin", "reset", "half", "chunk")


def cut_bodies(service: Service, count: int, body: bytes, seed: int = 0) -> dict[str, int]:
    """Send `count` requests whose body ends too early: closed, reset, half-closed, or with a broken chunk.

    Returns the number of each ending, and under `answered_2xx` the number of requests that wrongly succeeded.
    """
    rng, done = random.Random(seed), dict.fromkeys([*ENDINGS, "answered_2xx"], 0)
    for k in range(count):
        ending = ENDINGS[k % len(ENDINGS)]
        with _connected(service) as client:
            sent = body[: rng.randrange(len(body))]
            if ending == "chunk":
                client.sendall(_head("transfer-encoding: chunked") + b"%x\r\n" % len(sent) + sent + b"\r\nzz\r\n")
            else:
                client.sendall(_head(f"content-length: {len(body)}") + sent)
            if ending == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if ending in ("half", "chunk"):
                client.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    done["answered_2xx"] += client.recv(100).startswith(b"HTTP/1.1 2")
        done[ending] += 1
    return done


@contextlib.contextmanager
def slow_bodies(service: Service, count: int, body: bytes) -> Iterator[list[socket.socket]]:
    """Open `count` connections that send a byte whenever `drip` is called, and close them with the block."""
    with contextlib.ExitStack() as open_:
        clients = [open_.enter_context(_connected(service)) for _ in range(count)]
        for client in clients:
            client.sendall(_head(f"content-length: {len(body)}"))
        yield clients


def drip(clients: list[socket.socket], body: bytes, seconds: float, pause: float = 0.1) -> tuple[int, int]:
    """Send `body` byte by byte on each connection. Returns (bytes sent, connections that the service closed)."""
    sent, closed, deadline, k = 0, set[int](), time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        for client in clients:
            if client.fileno() in closed:
                continue
            try:
                client.sendall(body[k : k + 1])
                sent += 1
            except OSError:
                closed.add(client.fileno())
        k = (k + 1) % (len(body) - 1)
        time.sleep(pause)
    return sent, len(closed)


def until_files_closed(service: Service, wanted: int, seconds: float = 10) -> int:
    """Return the open files of the service once they are at most `wanted`, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while (found := service.open_files()) > wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def question(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return a valid /predict body as a tree."""
    height, width, channels = shape
    image: Any = [[[7] * channels] * width] * height
    return {"instances": [image]}


def _connected(service: Service) -> socket.socket:
    where = urllib.parse.urlsplit(service.url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=10)


def _head(length: str) -> bytes:
    return f"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\r\n\r\n".encode()
