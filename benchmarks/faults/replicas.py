"""Two services on one PostgreSQL whose clocks differ by seconds. Answers of one are labelled at the other.

The clocks stand on both sides of a full hour, so that they disagree about the hour, the minute and the future.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
import urllib.parse
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Self

import asyncpg

from benchmarks.faults.clock import Clock
from benchmarks.faults.ledger import Ledger, LostError
from benchmarks.faults.process import Service

APART = 10.0
HOUR = 3600
UNITS = {"hour": HOUR, "minute": 60}
LOAD_SECONDS = 4.0
"""Seconds of load. The slower clock reaches the full hour in the middle."""
ALARM_SECONDS = 10.0
REPEATED = "the call was recorded: it may be repeated"
"""End of the line that a service writes if another one may repeat its call."""
DELIVERY_SECONDS = 30.0
RECORD_SECONDS = 30.0
"""Time in which a service records a call that the webhook has answered."""


class Hook:
    """A webhook that keeps the messages it receives. It is slow, so that a second call would begin during the first."""

    def __init__(self, seconds: float = 2.5) -> None:
        self.messages = messages = list[dict[str, Any]]()
        self.answered = answered = threading.Event()
        """Whether a message has its answer."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages.append(json.loads(self.rfile.read(int(self.headers.get("content-length", 0)))))
                time.sleep(seconds)
                self.send_response(204)
                self.end_headers()
                answered.set()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of a service that reports alarms to it, which any imperfect model raises."""
        return "--alarm-webhook", self.url, "--alarm-tolerance", "0"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def run_apart(
    services: tuple[Service, Service], clocks: tuple[Clock, Clock], ledger: Ledger, hook: Hook, rounds: int
) -> dict[str, int]:
    """Run `rounds` of load on both services while the clock of one, then of the other, is ahead across a full hour.

    Afterwards both know the same: each label once, the answers of each hour and minute by the time in their ids, the
    alarm's labels, and one call of the webhook.

    Raises:
        LostError: One service has a different state.
    """
    done = {"rounds": 0, "labelled_elsewhere": 0, "hours": 0, "minutes": 0, "windows": 0, "webhook_calls": 0}
    is_told = False
    for service, clock in zip(services, clocks, strict=True):
        clock.set(0)
        service.start().until(200)
    for k in range(rounds):
        hour = (int(time.time()) // HOUR + 1 + k) * HOUR
        behind = hour - LOAD_SECONDS / 2 - time.time()
        for place, clock in enumerate(clocks):
            clock.set(behind + (APART if place == k % 2 else 0))
        with ledger.load(*services):
            time.sleep(LOAD_SECONDS)
        for service in services:
            ledger.settle(service)
        for service in services:
            # Minutes are kept for some hours only; all rounds are within them.
            for unit, seconds in UNITS.items():
                done[f"{unit}s"] = _check_trend(service, ledger, unit, seconds)
            _check_windows(service, ledger, hour)
            done["windows"] += 2
            _check_alarm(service, ledger)
        # A clock that jumps by an hour during a call, or before the call is recorded, ends its claim, and the other
        # service may rightly repeat it.
        if _has_fired(services[0]) and not is_told:
            if not hook.answered.wait(DELIVERY_SECONDS):
                raise LostError(f"the alarm fired, and {DELIVERY_SECONDS:g} s later the webhook was not called")
            asyncio.run(_wait_for_record(services[0].store))
            is_told = True
        done["rounds"] += 1
    labelled = ledger.labelled_by.items()
    done["labelled_elsewhere"] = sum(url != ledger.answered_by[id_] for id_, url in labelled)
    done["webhook_calls"] = len(hook.messages)
    logs = "".join(line for service in services for line in service.log().splitlines(True) if "alarm of" in line)
    # A machine on which a record takes longer than the claim lets the other service repeat the call, with the same id.
    if not 1 <= len(hook.messages) <= 1 + logs.count(REPEATED) or len({m["id"] for m in hook.messages}) != 1:
        calls = [(message["id"], message["type"], message.get("null")) for message in hook.messages]
        raise LostError(f"the webhook was called {len(calls)} times for one alarm: {calls}\n{logs}")
    if any("Traceback" in service.log() for service in services):
        raise LostError("".join(service.log()[-2000:] for service in services))
    return done


def _told(id_: str) -> int:
    """Return the second in an id."""
    return int(id_[:12], 16) // 1000


def _report(service: Service, **query: str) -> dict[str, Any]:
    answer = service.get(f"/calibration-report?{urllib.parse.urlencode(query)}")
    if answer.status != 200:
        raise LostError(f"the report with {query} answers {answer.status}: {answer.body[:500]!r}")
    tree: dict[str, Any] = answer.json()
    return tree


def _check_trend(service: Service, ledger: Ledger, unit: str, seconds: int) -> int:
    """Compare every period with the ledger's ids and labels, and return the number of periods."""
    points = _report(service, trend=unit)["trend"]["points"]
    told = {int(datetime.fromisoformat(p["start"]).timestamp()): (p["answers"], p["labelled"]) for p in points}
    answers = Counter(_told(id_) // seconds * seconds for id_ in ledger.probabilities)
    labels = Counter(_told(id_) // seconds * seconds for id_ in ledger.labels)
    expected = {start: (count, labels[start]) for start, count in answers.items()}
    if {start: counts for start, counts in told.items() if counts[0]} != expected:
        raise LostError(f"trend by {unit}: the service has {told}, the ledger {expected}")
    return len(expected)


def _check_windows(service: Service, ledger: Ledger, hour: int) -> None:
    """Check that the answers before and after the full hour, by both clocks, are all answers."""
    at = datetime.fromtimestamp(hour, UTC).isoformat()
    before, after = (_report(service, **{name: at}) for name in ("until", "since"))
    expected = sum(_told(id_) < hour for id_ in ledger.probabilities)
    found = before["answers"], after["answers"]
    if found != (expected, len(ledger.probabilities) - expected):
        raise LostError(f"before and after {at}: {found} answers, the ledger has {expected} before")


def _check_alarm(service: Service, ledger: Ledger) -> None:
    deadline = time.monotonic() + ALARM_SECONDS
    while (labels := _report(service)["alarm"]["nulls"][0]["labels"]) != len(ledger.labels):
        if time.monotonic() > deadline:
            raise LostError(f"the alarm has {labels} labels, the ledger {len(ledger.labels)}")
        time.sleep(0.1)


def _has_fired(service: Service) -> bool:
    return bool(_report(service)["alarm"]["nulls"][0]["fired_at"])


async def _wait_for_record(store: str) -> None:
    """Wait until the store has a delivery of the alarm. A service may take seconds to record it on a busy machine."""
    deadline = time.monotonic() + RECORD_SECONDS
    connection = await asyncpg.connect(store)
    try:
        while not any(map(_is_delivered, await connection.fetch("SELECT state FROM states WHERE name = 'alarm'"))):
            if time.monotonic() > deadline:
                raise LostError(f"the webhook answered, and {RECORD_SECONDS:g} s later no delivery was in the store")
            await asyncio.sleep(0.1)
    finally:
        await connection.close()


def _is_delivered(row: asyncpg.Record) -> bool:
    deliveries = json.loads(row["state"])["deliveries"]
    return any(delivery["delivered_ms"] is not None for delivery in deliveries.values())
