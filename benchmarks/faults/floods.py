"""Clients that send endless heads, trailers, chunk sizes or requests as fast as they can."""

from __future__ import annotations

import contextlib
import select
import socket
import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.faults.process import Service
from benchmarks.faults.watch import Watched, watched

BLOCK = 64 * 1024
LINE = b"POST /health/live HTTP/1.1\r\nhost: x\r\n"
CHUNKED = LINE + b"transfer-encoding: chunked\r\n\r\n"
FLOODS: dict[str, tuple[bytes, bytes]] = {
    "header value": (LINE + b"a: ", b"x" * BLOCK),
    "header name": (LINE, b"x" * BLOCK),
    "headers": (LINE, b"a: b\r\n" * (BLOCK // 6)),
    "empty headers": (LINE, b"a:\r\n" * (BLOCK // 4)),
    "spaces": (LINE + b"a:", b" " * BLOCK),
    "folded header": (LINE + b"a: b\r\n", b" c\r\n" * (BLOCK // 4)),
    "path": (b"GET /", b"x" * BLOCK),
    "method": (b"", b"A" * BLOCK),
    "empty lines": (b"", b"\r\n" * (BLOCK // 2)),
    "trailer": (CHUNKED + b"1\r\na\r\n0\r\na: ", b"x" * BLOCK),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * (BLOCK // 6)),
    "chunk size": (CHUNKED, b"0" * BLOCK),
    "chunk extension": (CHUNKED + b"1;", b"x" * BLOCK),
    "chunk extensions": (CHUNKED, (b"1;" + b"e" * 1_000 + b"\r\na\r\n") * (BLOCK // 1_000)),
    "small chunks": (CHUNKED, b"1\r\na\r\n" * (BLOCK // 6)),
    "requests": (b"", b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n" * (BLOCK // 40)),
    "requests with headers": (b"", (b"GET /health/live HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * 1_500 + b"\r\n") * 8),
}
"""Bytes that are sent first, and bytes that are repeated, by kind of flood."""
ALLOWED = {"small chunks", "requests", "requests with headers"}
"""Floods of valid requests, whose number alone is the problem."""


@dataclass
class Flood:
    """Results for the connections of one kind."""

    connections: int = 0
    megabytes: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    """Status of the first answer on each connection, or `none`."""
    watched: Watched = field(default_factory=Watched)


def flood(service: Service, kind: str, seconds: float) -> Flood:
    """Send this kind of flood for some time, on a new connection whenever the service closes one."""
    found, where = Flood(), urllib.parse.urlsplit(service.url)
    with watched(service) as found.watched:
        deadline = time.monotonic() + seconds  # from now: the start of the probe takes as long as a short flood
        while time.monotonic() < deadline:
            sent, answer = pour((where.hostname or "", where.port or 0), *FLOODS[kind], deadline)
            found.connections += 1
            found.megabytes += sent / 1e6
            found.statuses[answer[9:12].decode() or "none"] += 1
    return found


def pour(address: tuple[str, int], first: bytes, again: bytes, deadline: float) -> tuple[int, bytes]:
    """Send until the other side closes or the time is over. Returns (bytes sent, beginning of the answer)."""
    sent, answer, out = 0, b"", memoryview(first or again)
    with socket.create_connection(address, timeout=10) as client, contextlib.suppress(OSError):
        client.setblocking(False)
        while (left := deadline - time.monotonic()) > 0:
            readable, writable, _ = select.select([client], [client], [], left)
            if readable:
                if not (part := client.recv(BLOCK)):
                    break
                answer = (answer + part)[:1_000]
            if writable:
                count = client.send(out)
                sent, out = sent + count, out[count:] or memoryview(again)
    return sent, answer
