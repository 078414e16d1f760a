"""Prometheus metrics: of one process in a registry of its own, of several workers in files they share."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.core import Metric

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of the workers' files; prometheus_client reads it when imported."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KEY = ["model", "version"]


class Telemetry:
    """Counters of this process, or of all workers."""

    def __init__(self) -> None:
        # With shared files a registry only collects: a second application in one process adds to the same numbers.
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("trueodds_requests", "Requests", ["route", "status", *KEY], registry=registry)
        self._seconds = Histogram(
            "trueodds_request_seconds", "Time to answer", ["route", *KEY], registry=registry, buckets=SECONDS
        )
        self._batches = Histogram(
            "trueodds_batch_images", "Images the model took at once", KEY, registry=registry, buckets=SIZES
        )
        self._predictions = Counter("trueodds_predictions", "Predictions stored", KEY, registry=registry)
        self._waiting = Gauge(
            "trueodds_queue_images",
            "Images that waited when the last batch was taken",
            KEY,
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._left_out = Counter(
            "trueodds_shadow_left_out", "Images a shadow version did not keep up with", KEY, registry=registry
        )
        self._loads = Counter("trueodds_bundle_loads", "Bundles loaded, by outcome", ["outcome"], registry=registry)
        self._labels = Counter("trueodds_labels", "Labels received, by outcome", ["outcome"], registry=registry)
        self._observations = Counter(
            "trueodds_observations", "Answers of other servers, by outcome", ["outcome"], registry=registry
        )
        self._events = Counter(
            "trueodds_kserve_events", "Events of KServe's logger, by outcome", ["type", "outcome"], registry=registry
        )
        self._request_of = lru_cache(4096)(self._children)

    def of(self, model: str, version: str) -> VersionTelemetry:
        key = model, version
        children = (c.labels(*key) for c in (self._batches, self._predictions, self._waiting, self._left_out))
        return VersionTelemetry(*children)  # type: ignore[arg-type]

    def request(self, route: str, status: int, seconds: float, key: tuple[str, str] = ("", "")) -> None:
        """`key`: model and version, for a request that was answered by one."""
        count, histogram = self._request_of(route, status, key)
        count.inc()
        histogram.observe(seconds)

    def load(self, outcome: str) -> None:
        self._loads.labels(outcome).inc()

    def labels(self, counts: Mapping[str, int]) -> None:
        """Labels of an accepted call, by what became of them."""
        for outcome, count in counts.items():
            if count:
                self.label(outcome, count)

    def label(self, outcome: str, count: int = 1) -> None:
        """`outcome`: what became of a label, or the code of the reason why it was refused."""
        self._labels.labels("unmatched" if outcome == "unknown_id" else outcome).inc(count)

    def observation(self, outcome: str, count: int = 1) -> None:
        """`outcome`: what became of an observation, or the code of the reason why it was refused."""
        self._observations.labels(outcome).inc(count)

    def event(self, kind: str, outcome: str, count: int = 1) -> None:
        """A half of an inference of KServe, request or response: taken, waiting, unpaired, or a refusal's code."""
        if count:
            self._events.labels(kind, outcome).inc(count)

    def text(self, gauges: list[Metric]) -> bytes:
        """The exposition format: all that was counted, and `gauges`, which the files of workers do not hold."""
        counted = self._registry
        if folder := os.environ.get(SHARED_FOLDER):
            _forget_the_dead(Path(folder))
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        current = CollectorRegistry()
        current.register(_Families(gauges))
        return generate_latest(counted) + generate_latest(current)

    def _children(self, route: str, status: int, key: tuple[str, str]) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, str(status), *key), self._seconds.labels(route, *key)


class VersionTelemetry:
    """The counters of one model version."""

    def __init__(self, batches: Histogram, predictions: Counter, waiting: Gauge, left_out: Counter) -> None:
        self._batches, self._predictions, self._waiting, self._left_out = batches, predictions, waiting, left_out

    def batch(self, size: int, *, stored: int, waiting: int = 0) -> None:
        self._batches.observe(size)
        self._predictions.inc(stored)
        self._waiting.set(waiting)

    def shadow_left_out(self, count: int) -> None:
        self._left_out.inc(count)


class _Families:
    """A collector of metrics that are made already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _forget_the_dead(folder: Path) -> None:
    """Gauges of workers that have ended; what they counted stays."""
    for pid in {int(name[1]) for path in folder.iterdir() if (name := re.search(r"_live\w+_(\d+)\.db$", path.name))}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):
                multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
        except PermissionError:
            continue
