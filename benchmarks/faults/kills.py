"""kill -9 at random moments: under load, during the start, and during the stop."""

from __future__ import annotations

import random
import time

from benchmarks.faults.ledger import Ledger
from benchmarks.faults.process import Service


def kill_at_random(service: Service, ledger: Ledger, kills: int, seed: int = 0) -> dict[str, int]:
    """Kill and restart the service `kills` times under load, after up to 200 answers, and check the ledger each time.

    Every fourth restart is itself killed shortly before or after it listens. Every fifth kill hits a service that was
    already told to stop. The service is left running.

    Raises:
        LostError: Something acknowledged is lost or counts twice.
    """
    rng, done = random.Random(seed), {"under_load": 0, "while_starting": 0, "while_stopping": 0}
    service.start().until(200)
    for k in range(kills):
        with ledger.load(service):
            # Under load at any speed of the machine: some answers came, more are under way.
            wanted, deadline = len(ledger.probabilities) + rng.randint(1, 200), time.monotonic() + 5
            while len(ledger.probabilities) < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.02))
            if k % 5 == 4:
                done["while_stopping"] += stop_and_kill(service, rng.uniform(0, 0.03))
            else:
                service.kill()
                done["under_load"] += 1
        if k % 4 == 3:
            service.launch()
            time.sleep(rng.uniform(0.2, 1.5))
            service.kill()
            done["while_starting"] += 1
        service.start().until(200)
        ledger.settle(service)
    return done


def stop_and_kill(service: Service, seconds: float) -> int:
    """Send SIGTERM, and SIGKILL a moment later. Returns 1 if the process still lived for the second."""
    process = service._process
    assert process
    process.terminate()
    time.sleep(seconds)
    late = process.poll() is None
    process.kill()
    process.wait()
    return int(late)
