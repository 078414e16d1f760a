"""Prometheus metrics: in a registry of one process, or in files shared by several workers."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    Summary,
    generate_latest,
    multiprocess,
)
from prometheus_client.core import Metric

from service.telemetry.statistics import Statistics, by_version

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder of the workers' files. prometheus_client reads it at import."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KEY = ["model", "version"]
Lost = Literal["hung_up", "unread", "too_many"]
"""Reasons why a connection was lost."""


class Telemetry:
    """Counters of this process, or of all workers."""

    def __init__(self) -> None:
        # With shared files a registry only collects, so a second application in the process adds to the same numbers.
        self._registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._requests = counter("trueodds_requests", "Requests", ["route", "status", *KEY])
        self._seconds = histogram("trueodds_request_seconds", "Time to answer", ["route", *KEY], buckets=SECONDS)
        self._failed_seconds = counter(
            "trueodds_failed_request_seconds",
            "Part of trueodds_request_seconds of requests to a version that ended in an error",
            KEY,
        )
        text = "Time that the model took for a batch"
        self._model_seconds = Summary("trueodds_model_seconds", text, KEY, registry=registry)
        text = "Unix time at which the model took its last batch"
        self._last = gauge("trueodds_last_batch_timestamp_seconds", text, KEY, multiprocess_mode="max")
        text = "Inputs per batch"
        self._batches = histogram("trueodds_batch_images", text, KEY, buckets=SIZES)
        self._predictions = counter("trueodds_predictions", "Predictions stored", KEY)
        text = "Inputs that waited when the last batch was taken"
        self._waiting = gauge("trueodds_queue_images", text, KEY, multiprocess_mode="livesum")
        self._left_out = counter(
            "trueodds_shadow_left_out", "Inputs left out because a shadow version was too slow", KEY
        )
        self._loads = counter("trueodds_bundle_loads", "Bundles loaded, by outcome", ["outcome"])
        self._labels = counter("trueodds_labels", "Labels received, by outcome", ["outcome"])
        self._observations = counter("trueodds_observations", "Answers of other servers, by outcome", ["outcome"])
        text = "Events of KServe's logger, by outcome"
        self._events = counter("trueodds_kserve_events", text, ["type", "outcome"])
        self._lost = counter(
            "trueodds_lost_connections",
            "Connections that broke before the answer was complete (hung_up), whose client read nothing of it (unread),"
            " or that exceeded the limit of their address or of all (too_many)",
            ["reason"],
        )
        for reason in get_args(Lost):  # series from the start, because a rate would miss the first event
            self._lost.labels(reason)
        text = "Attempts to send a webhook an alarm, a recalibration without a decision, or a test, by outcome"
        self._deliveries = counter("trueodds_webhook_deliveries", text, ["webhook", "outcome"])
        self._delivered = gauge(
            "trueodds_webhook_last_delivery_timestamp_seconds",
            "Unix time at which a webhook last accepted a message; no series before the first since the start",
            ["webhook"],
            multiprocess_mode="max",
        )
        text = "Recalibrations reported to have ended without a decision"
        self._undecided = counter("trueodds_recalibrations_undecided", text)
        self._request_of = lru_cache(4096)(self._children)

    def of(self, model: str, version: str) -> VersionTelemetry:
        key = model, version
        counted = (self._batches, self._predictions, self._waiting, self._left_out, self._model_seconds, self._last)
        return VersionTelemetry(*(c.labels(*key) for c in counted))  # type: ignore[arg-type]

    def request(self, route: str, status: int, seconds: float, key: tuple[str, str] = ("", "")) -> None:
        """Count a request. `key` has the model and version that answered it, if any."""
        count, histogram = self._request_of(route, status, key)
        count.inc()
        histogram.observe(seconds)
        if status >= 400 and key[0]:
            self._failed_seconds.labels(*key).inc(seconds)

    def count_lost(self, reason: Lost) -> None:
        self._lost.labels(reason).inc()

    def load(self, outcome: str) -> None:
        self._loads.labels(outcome).inc()

    def labels(self, counts: Mapping[str, int]) -> None:
        """Count the labels of an accepted call by outcome."""
        for outcome, count in counts.items():
            if count:
                self.label(outcome, count)

    def label(self, outcome: str, count: int = 1) -> None:
        """Count a label. `outcome` is its outcome, or the code of its refusal."""
        self._labels.labels("unmatched" if outcome == "unknown_id" else outcome).inc(count)

    def observation(self, outcome: str, count: int = 1) -> None:
        """Count an observation. `outcome` is its outcome, or the code of its refusal."""
        self._observations.labels(outcome).inc(count)

    def event(self, kind: str, outcome: str, count: int = 1) -> None:
        """Count a request or response of an inference in KServe: taken, waiting, unpaired, or the code of a refusal."""
        if count:
            self._events.labels(kind, outcome).inc(count)

    def webhook(self, name: str) -> None:
        """Start a webhook's series at 0, because an alert rule sees no increase in a series that starts at 1."""
        for outcome in ("delivered", "failed"):
            self._deliveries.labels(name, outcome)

    def delivery(self, webhook: str, *, is_delivered: bool) -> None:
        self._deliveries.labels(webhook, "delivered" if is_delivered else "failed").inc()
        if is_delivered:
            self._delivered.labels(webhook).set_to_current_time()

    def count_undecided_recalibration(self) -> None:
        """Count a recalibration that ended without a decision."""
        self._undecided.inc()

    def text(self, gauges: list[Metric]) -> bytes:
        """Return the exposition format: counters, resources of the processes, and `gauges`."""
        counted, processes = self._merge_counters(), list(ProcessCollector(registry=None).collect())
        if folder := os.environ.get(SHARED_FOLDER):
            processes = _of_all_processes(Path(folder))
        current = CollectorRegistry()
        current.register(_Families([*processes, *gauges]))
        return generate_latest(counted) + generate_latest(current)

    def statistics(self) -> dict[tuple[str, str], Statistics]:
        """Return the counts of all workers, by version."""
        return by_version(self._merge_counters().collect())

    def _merge_counters(self) -> CollectorRegistry:
        """Return the counters of this process, or of all workers."""
        if not (folder := os.environ.get(SHARED_FOLDER)):
            return self._registry
        _forget_the_dead(Path(folder))
        counted = CollectorRegistry()
        multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        return counted

    def _children(self, route: str, status: int, key: tuple[str, str]) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, str(status), *key), self._seconds.labels(route, *key)


@dataclass(frozen=True)
class VersionTelemetry:
    """Counters of one model version."""

    _batches: Histogram
    _predictions: Counter
    _waiting: Gauge
    _left_out: Counter
    _model_seconds: Summary
    _last: Gauge

    def count_model_batch(self, seconds: float) -> None:
        """Count a batch that the model has scored."""
        self._model_seconds.observe(seconds)

    def batch(self, size: int, *, new_predictions: int, waiting: int = 0) -> None:
        self._batches.observe(size)
        self._last.set_to_current_time()
        self._predictions.inc(new_predictions)
        self._waiting.set(waiting)

    def shadow_left_out(self, count: int) -> None:
        self._left_out.inc(count)


class _Families:
    """Collector of existing metrics."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _of_all_processes(folder: Path) -> list[Metric]:
    """Return the resource use of supervisor and workers, each with its `pid`.

    A sum over the processes would fall when a worker ends, which Prometheus takes for a restart.
    """
    from service.telemetry import worker_files  # its file locks do not exist on Windows, where one process serves

    families: dict[str, Metric] = {}
    for pid in worker_files.processes(folder):
        for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.add_sample(sample.name, {**sample.labels, "pid": str(pid)}, sample.value)
    return list(families.values())


def _forget_the_dead(folder: Path) -> None:
    """Remove the gauges of workers that have ended. Their counters stay."""
    for pid in {int(name[1]) for path in folder.iterdir() if (name := re.search(r"_live\w+_(\d+)\.db$", path.name))}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):
                multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
        except PermissionError:
            continue
