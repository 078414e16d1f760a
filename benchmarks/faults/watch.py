"""Effects on a service: the latency of a health probe, and its peak memory."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.faults.process import Service

PAUSE = 0.01


@dataclass
class Watched:
    """Measurements that are set when the block of `watched` ends. Times in milliseconds."""

    probes: int = 0
    probes_failed: int = 0
    worst_ms: float = 0.0
    p99_ms: float = 0.0
    grown_mb: float = 0.0
    """Peak resident memory above that at the start."""


@contextlib.contextmanager
def watched(service: Service, *, fresh: bool = False) -> Iterator[Watched]:
    """Probe the service and watch its memory while the block runs. With `fresh`, each probe opens a connection."""
    found, ended = Watched(), threading.Event()
    where = urllib.parse.urlsplit(service.url)
    command = [sys.executable, "-I", str(Path(__file__).with_name("probe.py")), where.hostname or "", str(where.port)]
    how = ["fresh"] if fresh else []
    before, process = service.resident_mb(), psutil.Process(service.pid)

    def sample() -> None:
        while not ended.wait(PAUSE):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.grown_mb = max(found.grown_mb, process.memory_info().rss / 1e6 - before)

    sampler = threading.Thread(target=sample)
    probe = subprocess.Popen([*command, str(PAUSE), *how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert probe.stdout
    probe.stdout.readline()  # it asks now
    sampler.start()
    try:
        yield found
    finally:
        ended.set()
        sampler.join()
        said, _ = probe.communicate("\n", timeout=60)
        probed = json.loads(said)
        found.probes, found.probes_failed = probed["asked"], probed["failed"]
        found.worst_ms, found.p99_ms = probed["worst_ms"], probed["p99_ms"]
