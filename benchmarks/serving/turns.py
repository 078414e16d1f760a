"""Ours beside one other in short turns, both up all the while: a shared machine's speed changes by a tenth in a minute.

The one whose turn it is not is stopped (SIGSTOP): LitServe's batching worker asks its queue again and again, and would
take a core from whoever is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.serving import load
from benchmarks.serving.servers import OURS, RAW, TWO_WORKERS, Running

TURNS, LONGER = 12, 3
"""Turns, and how much longer ours is loaded than onnxruntime alone in each: what is under way when time is up does
not count, up to 32 of the 560 images that ResNet-18 answers in two seconds."""
QUICK = 2
"""Turns that tell whether it works."""
CONNECTIONS = {"LitServe": (1, 8, 32), "mosec": (1, 8, 32), TWO_WORKERS.server: (1, 8, 32)}

Series = dict[tuple[str, int], list[load.Load]]
"""By server and connections, a load for each turn."""


def beside_peer(ours: Running, theirs: Running, body: Path, seconds: float, turns: int) -> dict[str, Any]:
    """`ratio`: ours by theirs in requests per second, each with the connections that suit it best, and `ratios`, with
    the same; turn by turn, of which the median."""
    series: Series = {}
    order, servers, numbers = Random(0), [ours, theirs], CONNECTIONS[theirs.server]
    for running in servers:
        load.wrk(running.url(body.stem), body, numbers[-1], 1)  # warm
    for _ in range(turns):
        order.shuffle(servers)
        for running, other in zip(servers, servers[::-1], strict=True):
            with load.stopped(other.pid):
                for connections in numbers:
                    found = load.wrk(running.url(body.stem), body, connections, seconds)
                    series.setdefault((running.server, connections), []).append(found)
    best = _ratio(_best(series, ours.server), _best(series, theirs.server))
    ratios = {str(n): _ratio(series[ours.server, n], series[theirs.server, n]) for n in numbers}
    return {**_result(theirs.server, best, series), "ratios": ratios}


def beside_raw(
    ours: Running, raw: Callable[[bool], load.Load], body: Path, seconds: float, turns: int
) -> dict[str, Any]:
    """`raw`: onnxruntime alone, with or without spinning threads: what is better in the median counts."""
    connections = 32
    series: Series = {}
    load.wrk(ours.url(body.stem), body, connections, 1)  # warm
    for _ in range(turns):
        mine = load.wrk(ours.url(body.stem), body, connections, LONGER * seconds)
        series.setdefault((OURS.server, connections), []).append(mine)
        with load.stopped(ours.pid):
            for spinning in (False, True):
                name = f"{RAW}{', spinning' if spinning else ''}"
                series.setdefault((name, connections), []).append(raw(spinning))
    best = max((found for (name, _), found in series.items() if name != OURS.server), key=_median)
    return _result(RAW, _ratio(series[OURS.server, connections], best), series)


def _best(series: Series, server: str) -> list[load.Load]:
    return max((found for (name, _), found in series.items() if name == server), key=_median)


def _median(found: list[load.Load]) -> float:
    return statistics.median(one.rps for one in found)


def _ratio(ours: list[load.Load], theirs: list[load.Load]) -> float:
    return statistics.median(mine.rps / its.rps for mine, its in zip(ours, theirs, strict=True))


def _result(beside: str, ratio: float, series: Series) -> dict[str, Any]:
    rows = [
        {
            "server": server,
            "connections": connections,
            "rps": [one.rps for one in found],
            "p99_ms": [one.p99_ms for one in found],
            "failed": sum(one.failed for one in found),
        }
        for (server, connections), found in series.items()
    ]
    return {"beside": beside, "ratio": ratio, "series": rows}
