"""Ours and one other server in short turns, both running, because a shared machine's speed changes by 10% in a minute.

The server that is not measured is stopped (SIGSTOP). LitServe's batching worker polls its queue continuously and would
take a core from the other.
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
"""Number of turns, and the factor by which ours is loaded longer than onnxruntime alone.

Requests in progress at the end do not count: up to 32 of the 560 images that ResNet-18 answers in two seconds.
"""
QUICK = 2
"""Number of turns of a trial run."""
CONNECTIONS = {"LitServe": (1, 8, 32), "mosec": (1, 8, 32), TWO_WORKERS.server: (1, 8, 32)}

Series = dict[tuple[str, int], list[load.Load]]
"""Loads of each turn, by server and connections."""


def beside_peer(ours: Running, theirs: Running, body: Path, seconds: float, turns: int) -> dict[str, Any]:
    """Return the ratio of ours to theirs in requests per second, as medians over turns.

    `ratio` has each server's best number of connections, `ratios` the same number for both.
    """
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
    """Return ours against onnxruntime alone (`raw`), with or without spinning threads, whichever median is better."""
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
