"""Prometheus metrics: of one process in a registry of its own, of several workers in files they share."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.metrics import ece
from service.records import LabelCounts, StoredSums, Version

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of the workers' files; prometheus_client reads it when imported."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KEY = ["model", "version"]


class Telemetry:
    """Counters of this process, or of all workers; what the store and the registry of models know is read with them."""

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

    def labels(self, counts: LabelCounts) -> None:
        """Labels of an accepted call: stored, already_known (duplicates), corrected, held (they came first)."""
        for outcome in ("stored", "already_known", "corrected", "held"):
            if count := getattr(counts, outcome):
                self._labels.labels(outcome).inc(count)

    def refused_label(self, code: str, count: int = 1) -> None:
        """Labels that were not stored, by the code of their error; unknown_id is counted as unmatched."""
        self._labels.labels("unmatched" if code == "unknown_id" else code).inc(count)

    def text(self, store: Iterable[tuple[Version, StoredSums]], loaded: Iterable[tuple[str, str, str, bool]]) -> bytes:
        """The exposition format, with gauges of what is stored, and of (model, version, role, ready)."""
        counted = self._registry
        if folder := os.environ.get(SHARED_FOLDER):
            _forget_the_dead(Path(folder))
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        read = CollectorRegistry()
        read.register(_Now([*_stored(store), *_loaded(loaded)]))
        return generate_latest(counted) + generate_latest(read)

    def _children(self, route: str, status: int, key: tuple[str, str]) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, str(status), *key), self._seconds.labels(route, *key)


class VersionTelemetry:
    """What is counted of one model version."""

    def __init__(self, batches: Histogram, predictions: Counter, waiting: Gauge, left_out: Counter) -> None:
        self._batches, self._predictions, self._waiting, self._left_out = batches, predictions, waiting, left_out

    def batch(self, size: int, *, stored: int, waiting: int = 0) -> None:
        self._batches.observe(size)
        self._predictions.inc(stored)
        self._waiting.set(waiting)

    def shadow_left_out(self, count: int) -> None:
        self._left_out.inc(count)


class _Now:
    """A collector of values that are read when they are asked for: files of several workers hold no such gauges."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _stored(store: Iterable[tuple[Version, StoredSums]]) -> list[Metric]:
    answers = GaugeMetricFamily("trueodds_answers", "Predictions in the store", labels=KEY)
    labelled = GaugeMetricFamily("trueodds_labelled", "Predictions with a label", labels=KEY)
    error = GaugeMetricFamily("trueodds_ece", "Plug-in ECE, 15 bins; NaN without labels", labels=KEY)
    for version, sums in store:
        key, n = [version.model, version.version], sums.labelled.n
        answers.add_metric(key, sums.answers)
        labelled.add_metric(key, n)
        error.add_metric(key, ece(sums.labelled) if n else float("nan"))
    return [answers, labelled, error]


def _loaded(loaded: Iterable[tuple[str, str, str, bool]]) -> list[Metric]:
    ready = GaugeMetricFamily(
        "trueodds_version_ready", "1: loaded; 0: meant to be, and refused or not loaded yet", labels=[*KEY, "role"]
    )
    for model, version, role, is_ready in loaded:
        ready.add_metric([model, version, role], float(is_ready))
    return [ready]


def _forget_the_dead(folder: Path) -> None:
    """Gauges of workers that have ended; what they counted stays."""
    for pid in {int(found[1]) for path in folder.iterdir() if (found := re.search(r"_live\w+_(\d+)\.db$", path.name))}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):
                multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
        except PermissionError:
            continue
