"""A network between the service and PostgreSQL that can be cut, held and mended without touching the database."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
import urllib.parse
from typing import Self

from benchmarks.faults.ledger import Ledger, LostError
from benchmarks.faults.process import Service


class Network:
    """Forwards a free local port to the port of a database. The service gets `url`.

    `cut` breaks every connection and refuses new ones (the database is down). `hold` keeps connections but passes
    nothing on (it hangs). `mend` ends both. A cut that is mended at once looks like a restart of the database.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._target = parts.hostname or "127.0.0.1", parts.port or 5432
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._held, self._ended, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._listening: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        user = parts.netloc.rpartition("@")[0]
        self.url = parts._replace(netloc=f"{user + '@' if user else ''}127.0.0.1:{self._port}").geturl()
        self.carried = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self) -> int:
        """Break all connections and return their number."""
        with self._lock:
            if self._listening:
                self._listening.close()
                self._listening = None
            broken = len(self._pairs) // 2
            for one in list(self._pairs):
                self._drop(one)
        return broken

    def hold(self) -> None:
        self._held.set()

    def mend(self) -> None:
        self._held.clear()
        with self._lock:
            if not self._listening:
                self._listening = socket.create_server(("127.0.0.1", self._port))

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._held.is_set():
                time.sleep(0.01)
                continue
            with selectors.DefaultSelector() as selector, self._lock:
                for one in [*([self._listening] if self._listening else []), *self._pairs]:
                    selector.register(one, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(0.005)] if selector.get_map() else []
                for found in ready:
                    if found is self._listening:
                        self._accept()
                    elif isinstance(found, socket.socket) and found in self._pairs:
                        self._carry(found)
            time.sleep(0 if ready else 0.001)  # the lock is free here

    def _accept(self) -> None:
        assert self._listening
        inside, _ = self._listening.accept()
        try:
            outside = socket.create_connection(self._target, timeout=5)
        except OSError:
            inside.close()
            return
        self._pairs |= {inside: outside, outside: inside}

    def _carry(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
            self._pairs[one].sendall(data)
        except OSError:
            data = b""
        self.carried += len(data)
        if not data:
            self._drop(one)

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other:
            self._pairs.pop(other, None)
            other.close()
        with contextlib.suppress(OSError):
            one.close()


def interrupt(service: Service, ledger: Ledger, network: Network, times: int, gone: float = 1.0) -> dict[str, int]:
    """Restart the database, take it down for `gone` seconds, and let it hang as long, `times` times each under load.

    While it is down, calls answer 503 and the process lives. Within ten seconds afterwards they succeed again.

    Raises:
        LostError: Something acknowledged is lost, or the service does not recover.
    """
    done = {"restarted": 0, "gone": 0, "hanging": 0, "connections_broken": 0, "live": 0}
    service.start().until(200)
    ledger.ambiguous_refusals = True
    client = service.client()
    for k in range(3 * times):
        kind = ("restarted", "gone", "hanging")[k % 3]
        with ledger.load(service):
            time.sleep(0.3)
            refused = ledger.counts["predict_503"]
            if kind == "hanging":
                network.hold()
            else:
                done["connections_broken"] += network.cut()
            if kind != "restarted":
                time.sleep(gone)
                done["live"] += client.get("/health/live").status == 200
            if kind == "gone" and ledger.counts["predict_503"] == refused:
                raise LostError("the database is gone, and no /predict answered 503")
            network.mend()
            answered, deadline = len(ledger.probabilities), time.monotonic() + 10
            while len(ledger.probabilities) < answered + 10:
                if time.monotonic() > deadline:
                    raise LostError(f"no answers ten seconds after the database was {kind}: {service.log()[-1000:]}")
                time.sleep(0.01)
        done[kind] += 1
        ledger.settle(service)
    client.close()
    return done
