"""A service whose wall clock can be set at any moment, as by administrators or NTP. The monotonic clock is unchanged.

The process starts with a `sitecustomize` that adds the seconds in a file to time.time and time.time_ns.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from benchmarks.faults.ledger import Ledger
from benchmarks.faults.process import Service

DAY = 86_400.0
JUMPS = (-3600.0, DAY, -DAY, 0.0, -30 * 365 * DAY, 75 * 365 * DAY, -1.0, -60 * 365 * DAY, 0.001)
"""Offsets from the true time in seconds: hours back, years ahead, and before 1970."""
CODE = """import os, time

_path, _time, _time_ns = os.environ["TEST_CLOCK"], time.time, time.time_ns


def _offset():
    try:
        with open(_path) as file:
            return float(file.read() or 0)
    except FileNotFoundError:
        return 0.0


time.time = lambda: _time() + _offset()
time.time_ns = lambda: _time_ns() + int(_offset() * 10**9)
"""


class Clock:
    """A clock that `set` moves. `environment` is passed to a Service."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(CODE, encoding="utf-8")
        self.environment = {"PYTHONPATH": str(folder / "site"), "TEST_CLOCK": str(self._file)}

    def set(self, seconds: float) -> None:
        aside = self._file.with_suffix(".new")
        aside.write_text(repr(seconds), encoding="utf-8")
        aside.replace(self._file)


def jump(service: Service, ledger: Ledger, clock: Clock, jumps: int, seed: int = 0) -> dict[str, int]:
    """Set the clock again and again under load, restart after every third jump, and check the ledger after each.

    `seen` counts the jumps after which an id had the new time, which shows that the clock moved.
    """
    rng, done = random.Random(seed), {"jumps": 0, "seen": 0, "restarts": 0}
    service.start().until(200)
    for k in range(jumps):
        offset = JUMPS[k % len(JUMPS)]
        with ledger.load(service):
            time.sleep(rng.uniform(0.05, 0.2))
            clock.set(offset)
            time.sleep(0.2)
            done["seen"] += _seen(ledger, offset)
        done["jumps"] += 1
        ledger.settle(service)
        if k % 3 == 2:
            service.kill()
            service.start().until(200)
            done["restarts"] += 1
    return done


def _seen(ledger: Ledger, offset: float) -> bool:
    """Return whether an id has the new time within ten seconds. Its first 12 characters are milliseconds in hex."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        told = int(list(ledger.probabilities)[-1][:12], 16) / 1000
        if abs(told - time.time() - offset) < 60:
            return True
        time.sleep(0.005)
    return False
