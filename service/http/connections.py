"""What all connections of a server share: their limits, the places of each address, whose request is next."""

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
"""From the opening of a connection, or the first byte after an answer, to the empty line that ends the head."""
LOST = "connection_lost"
"""Key of the lifespan's state whose value counts answers that were lost, by the reason."""
SPARE_FILES = 64
"""Files that may be open beside the connections: the store, the models, what a request opens."""
MOST_FILES = 2**20
"""Connections at most, where the system has no limit of files."""
TOLD = 16
"""Connections beyond the limit of an address that are told so before they are closed; the others are only closed."""
TURN_REQUESTS, TURN_SECONDS = 16, 0.005
"""Requests behind others that begin in one turn of the event loop at most, and the time that a turn should take."""


def most_connections() -> int:
    """Return how many connections may be open: as many as files may, less SPARE_FILES."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return MOST_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else max(soft - SPARE_FILES, soft // 2)


@dataclass(frozen=True)
class Limits:
    """What one connection and one address may take of a server."""

    head_seconds: float = HEAD_SECONDS
    write_seconds: float = 30.0
    """Time after which a client that has taken nothing of its answer is cut off."""
    pipelined: int = 4
    """Requests of one connection that are parsed and not answered yet."""
    connections: int = 1000
    """Open connections of one address."""
    proxies: tuple[Network, ...] = ()
    """Addresses without that limit."""
    all_connections: int = MOST_FILES

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits that the settings and the system state.

        One address never has more than three quarters of all connections, so that others get in.
        """
        most = most_connections()
        return cls(
            write_seconds=settings.write_seconds,
            pipelined=settings.max_pipelined,
            connections=min(settings.max_connections, max(1, most * 3 // 4)),
            proxies=settings.proxies,
            all_connections=most,
        )


class Addresses:
    """Counts the open connections of each client's address; of IPv6 the first 64 bits, which one host has to itself.

    >>> addresses = Addresses(Limits(connections=1))
    >>> addresses.enter("::1"), addresses.enter("::2"), addresses.enter("127.0.0.1")
    (0, -1, 0)
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()
        self._all = 0

    def enter(self, host: str) -> int:
        """Count a new connection; return how many more its address may open. Below 0: it is one too many."""
        name = _name(host)
        self._all += 1
        self._open[name] += 1
        if self._all > self._limits.all_connections:
            return -self._limits.all_connections
        left = self._limits.connections - self._open[name]
        return 0 if left < 0 and self._is_proxy(host) else left

    def leave(self, host: str) -> None:
        """Take back what `enter` counted."""
        name = _name(host)
        self._all -= 1
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]

    def _is_proxy(self, host: str) -> bool:
        """Whether the address is a proxy's; a connection without one, by a Unix socket, is."""
        return not host or any(_address(host) in network for network in self._limits.proxies)


class Turns:
    """Begins the requests that waited for others on their connection: some in each turn of the event loop.

    Between two turns the loop accepts connections and reads first requests. So a client that asks one thing does not
    wait for those that have sent many: where somebody has connected, or a turn takes long, one request begins in it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._most = TURN_REQUESTS
        self._last = 0.0
        self.arrived = False
        """Whether somebody has connected since the last turn."""

    def add(self, begin: Callable[[], None]) -> None:
        """Have `begin` called in one of the next turns."""
        self._waiting.append(begin)
        if len(self._waiting) == 1:
            self._last = time.perf_counter()
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        now = time.perf_counter()
        busy = self.arrived or now - self._last > TURN_SECONDS
        self._most = max(1, self._most // 2) if busy else min(TURN_REQUESTS, self._most + 1)
        self.arrived, self._last = False, now
        for _ in range(min(self._most, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take)


class State(ServerState):
    """uvicorn's state of a server, with what its connections share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.addresses, self.turns = Addresses(limits), Turns()
        self.ending = False
        """Whether the server takes nothing more than what has come."""


def too_many(host: str, most: int) -> ServiceError:
    """The refusal of a connection of an address that has `most`."""
    message = (
        f"{host} has more than {most:,} connections open, the limit of one address; close some, or send several"
        " requests on each (--max-connections; --proxies names addresses without a limit)"
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
    """Return the address, which is one of IPv4 where it comes inside one of IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
