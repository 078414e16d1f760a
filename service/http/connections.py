"""State shared by all connections of a server: limits, places per address, and the order of pipelined requests."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from uvicorn.server import ServerState

from service.errors import ServiceError
from service.settings import Network, Settings

HEAD_SECONDS = 15.0
"""Time for a request's head: from the opening of the connection, or the first byte after an answer, to its end."""
LOST = "connection_lost"
"""Key in the lifespan's state of the function that counts lost answers by reason."""
SPARE_FILES = 64
"""Number of open files reserved for the store, the models and the requests."""
MOST_FILES = 2**20
"""Largest number of connections if the system does not limit open files."""
ANSWERED_EXCESS = 16
"""Number of connections beyond an address's limit that get an error answer. Others are closed without one."""
TURN_REQUESTS, TURN_SECONDS = 16, 0.005
"""Largest number of waiting requests that begin in one turn of the event loop, and the time that a turn should take."""


def most_connections() -> int:
    """Return the largest number of connections: the limit of open files, less SPARE_FILES."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else max(soft - SPARE_FILES, soft // 2)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one connection, of one address and of the server."""

    head_seconds: float = HEAD_SECONDS
    write_seconds: float = 30.0
    """Time after which a client that reads nothing of its answer is disconnected."""
    pipeline_depth: int = 4
    """Requests of one connection that are parsed but not answered yet."""
    connections: int = 1000
    """Open connections of one address."""
    proxies: tuple[Network, ...] = ()
    """Networks of proxies, to which that limit does not apply."""
    all_connections: int = MOST_FILES

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits from the settings and the system.

        One address gets at most three quarters of all connections, so that others can still connect.
        """
        most = most_connections()
        return cls(
            write_seconds=settings.write_seconds,
            pipeline_depth=settings.max_pipelined,
            connections=min(settings.max_connections, max(1, most * 3 // 4)),
            proxies=settings.proxies,
            all_connections=most,
        )


class Addresses:
    """Counts the open connections per address of the client. For IPv6 it uses the first 64 bits, which one host owns.

    >>> addresses = Addresses(ConnectionLimits(connections=1))
    >>> addresses.enter("::1"), addresses.enter("::2"), addresses.enter("127.0.0.1")
    (0, -1, 0)
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()
        self._all = 0

    def enter(self, host: str) -> int:
        """Count a new connection. Return how many more its address may open; a negative number means one too many."""
        name = _name(host)
        self._all += 1
        self._open[name] += 1
        if self._all > self._limits.all_connections:
            return -self._limits.all_connections
        left = self._limits.connections - self._open[name]
        return 0 if left < 0 and self._is_proxy(host) else left

    def leave(self, host: str) -> None:
        """Undo `enter`."""
        name = _name(host)
        self._all -= 1
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]

    def _is_proxy(self, host: str) -> bool:
        """Return whether the address is a proxy's. A connection without an address (a Unix socket) counts as one."""
        return not host or any(_address(host) in network for network in self._limits.proxies)


class Turns:
    """Queue of pipelined requests. In each turn of the event loop, some of them begin.

    Between two turns the loop accepts connections and reads first requests, so that a client with one request does not
    wait for clients with many. If somebody has connected, or a turn takes long, only one request begins in the next
    turn.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._most = TURN_REQUESTS
        self._clock = clock
        self._last = 0.0
        self.arrived = False
        """Whether somebody has connected since the last turn."""

    def add(self, begin: Callable[[], None]) -> None:
        """Call `begin` in one of the next turns."""
        self._waiting.append(begin)
        if len(self._waiting) == 1:
            self._last = self._clock()
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        now = self._clock()
        busy = self.arrived or now - self._last > TURN_SECONDS
        self._most = max(1, self._most // 2) if busy else min(TURN_REQUESTS, self._most + 1)
        self.arrived, self._last = False, now
        for _ in range(min(self._most, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take)


class ConnectionsState(ServerState):
    """State of uvicorn's server, with the parts that its connections share."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.addresses, self.turns = Addresses(limits), Turns()
        self.ending = False
        """Whether the server is shutting down and accepts no more requests."""


def too_many(host: str, most: int) -> ServiceError:
    """Return the error for a connection beyond the limit `most` of its address."""
    message = (
        f"{host} has more than {most:,} open connections, the limit per address; close some, or send several requests"
        " on each (--max-connections sets the limit; --proxies lists addresses without it)"
    )
    return ServiceError(503, "too_many_connections", message, retry_after=1)


def _name(host: str) -> str:
    """Return the name under which an address is counted."""
    if ":" not in host:
        return host
    address = _address(host)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address. An IPv4 address inside an IPv6 one is returned as IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
