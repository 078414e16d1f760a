"""Asks /health/live every few milliseconds from a process of its own, until its standard input closes.

`python probe.py <host> <port> <seconds between> [fresh]` prints `asking` once it does, and at its end a line of JSON.
With `fresh` it opens a new connection each time.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time


def main(host: str, port: int, pause: float, fresh: bool) -> None:
    times, failed = [], 0
    connection = http.client.HTTPConnection(host, port, timeout=30)
    while not select.select([sys.stdin], [], [], pause)[0]:
        begin = time.perf_counter()
        try:
            connection.request("GET", "/health/live")
            answer = connection.getresponse()
            answer.read()
            failed += answer.status != 200
            if fresh:
                connection.close()
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        times.append(1e3 * (time.perf_counter() - begin))
        if len(times) == 1:
            print("asking", flush=True)
    times.sort()
    worst, p99 = (times[-1], times[int(0.99 * (len(times) - 1))]) if times else (0.0, 0.0)
    print(json.dumps({"asked": len(times), "failed": failed, "worst_ms": worst, "p99_ms": p99}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), "fresh" in sys.argv[4:])
