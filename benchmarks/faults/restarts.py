"""A PostgreSQL that is stopped and started, or whose postmaster is killed, under the load of two services on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.faults.ledger import Ledger, LostError
from benchmarks.faults.postgres import Cluster
from benchmarks.faults.process import Service

SECONDS = 10.0
"""Seconds within which services notice that the database is down, and that it is back."""


def restart(
    services: tuple[Service, ...], ledger: Ledger, cluster: Cluster, times: int, gone: float = 1.0
) -> dict[str, int]:
    """Shut the database down, and kill its postmaster, `times` times each; it is back after `gone` seconds.

    In between every service lives, is not ready, says why, and refuses with 503. Afterwards each succeeds again.

    Raises:
        LostError: Something acknowledged is lost, or a service does not report the fault or does not recover.
    """
    done = {"stopped": 0, "killed": 0, "unready": 0, "recovered": 0}
    for service in services:
        service.start().until(200)
    ledger.ambiguous_refusals = True
    for k in range(2 * times):
        kind = ("stopped", "killed")[k % 2]
        with ledger.load(*services):
            time.sleep(0.3)
            refused = ledger.counts["predict_503"]
            (cluster.stop if kind == "stopped" else cluster.kill)()
            done[kind] += 1
            time.sleep(gone)
            for service in services:
                _check_unready(service)
                done["unready"] += 1
            _until(lambda: ledger.counts["predict_503"], refused + 1, "calls answered 503")
            cluster.start()
            for service in services:
                service.until(200, seconds=SECONDS)
                answered = _answered(ledger, service) + 10
                _until(partial(_answered, ledger, service), answered, "answers once it is back")
                done["recovered"] += 1
        for service in services:
            ledger.settle(service)
    for service in services:
        if "Traceback" in service.log() or "cannot be " not in service.log():
            raise LostError(f"its log says nothing clear: {service.log()[-3000:]}")
    return done


def _check_unready(service: Service) -> None:
    """Raise LostError unless the service lives and is not ready for a stated reason."""
    live, ready = service.get("/health/live").status, service.get("/health/ready")
    error: dict[str, Any] = ready.json().get("error", {})
    clear = error.get("code") == "store_unavailable" and "the store postgresql://" in str(error.get("message"))
    if live != 200 or ready.status != 503 or "retry-after" not in ready.headers or not clear:
        raise LostError(f"without a database /health/live answers {live}, /health/ready {ready.status} {ready.body!r}")


def _answered(ledger: Ledger, service: Service) -> int:
    return Counter(list(ledger.answered_by.values()))[service.url]


def _until(count: Callable[[], int], wanted: int, what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := count()) < wanted:
        if time.monotonic() > deadline:
            raise LostError(f"{found} {what} after {SECONDS} s, expected {wanted}")
        time.sleep(0.01)
