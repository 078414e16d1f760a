"""Prometheus metrics: of one process in a registry of its own, of several workers in files they share."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric

from service.alarm.readings import Standing
from service.alarm.state import NULLS, AlarmState
from service.store.records import LabelCounts, Version
from trueodds.metrics import EceInterval, ece_interval
from trueodds.sums.answers import AnswerSums
from trueodds.sums.inputs import Array

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of the workers' files; prometheus_client reads it when imported."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KEY = ["model", "version"]
ALARM_STATES: tuple[Standing, ...] = ("quiet", "notice", "fired", "acknowledged")

Stored = tuple[Version, AnswerSums, AlarmState | None, Standing]
"""What the store holds of a version, its evidence (None: it is damaged), and how its alarm stands."""


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
        self._intervals: dict[tuple[str, str], tuple[Array, EceInterval]] = {}

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
                self.label(outcome, count)

    def label(self, outcome: str, count: int = 1) -> None:
        """`outcome`: what became of a label, or the code of the reason why it was refused."""
        self._labels.labels("unmatched" if outcome == "unknown_id" else outcome).inc(count)

    def text(
        self,
        store: Iterable[Stored],
        loaded: Iterable[tuple[str, str, str, bool]],
        altered: Iterable[tuple[str, str, bool]],
    ) -> bytes:
        """The exposition format, with gauges of what is stored and what is loaded.

        `loaded`: (model, version, role, is ready); `altered`: (model, version, is altered on disk).
        """
        counted = self._registry
        if folder := os.environ.get(SHARED_FOLDER):
            _forget_the_dead(Path(folder))
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        read = CollectorRegistry()
        store = list(store)
        read.register(_Now([*_stored(store), *self._calibration(store), *_evidence(store), *_loaded(loaded, altered)]))
        return generate_latest(counted) + generate_latest(read)

    def _calibration(self, store: Iterable[Stored]) -> list[Metric]:
        texts = {
            "": "Plug-in ECE, 15 bins; NaN without labels",
            "_lower": "Lower end of the 95% interval of the ECE, for one look; NaN without labels",
            "_upper": "Upper end of the 95% interval of the ECE, for one look; NaN without labels",
        }
        families = [GaugeMetricFamily(f"trueodds_calibration_ece{k}", text, labels=KEY) for k, text in texts.items()]
        for version, sums, *_ in store:
            found = self._interval(version, sums) if sums.labelled.n else None
            values = (found.ece, found.lower, found.upper) if found else (float("nan"),) * 3
            for family, value in zip(families, values, strict=True):
                family.add_metric([version.model, version.version], value)
        return list(families)

    def _interval(self, version: Version, sums: AnswerSums) -> EceInterval:
        """Kept as long as the sums are the same: it takes 8 ms, and a version that is past never changes."""
        key, cells = (version.model, version.version), sums.labelled.cells[:3]
        before = self._intervals.get(key)
        if before is None or not np.array_equal(before[0], cells):
            before = self._intervals[key] = cells, ece_interval(sums.labelled)
        return before[1]

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


def _stored(store: Iterable[Stored]) -> list[Metric]:
    answers = GaugeMetricFamily("trueodds_answers", "Predictions in the store", labels=KEY)
    labelled = GaugeMetricFamily("trueodds_labelled", "Predictions with a label", labels=KEY)
    coverage = GaugeMetricFamily(
        "trueodds_label_coverage", "Share of the predictions that have a label; NaN without predictions", labels=KEY
    )
    for version, sums, *_ in store:
        key, n = [version.model, version.version], sums.labelled.n
        answers.add_metric(key, sums.answers)
        labelled.add_metric(key, n)
        coverage.add_metric(key, n / sums.answers if sums.answers else float("nan"))
    return [answers, labelled, coverage]


def _evidence(store: Iterable[Stored]) -> list[Metric]:
    alarm = GaugeMetricFamily(
        "trueodds_calibration_alarm",
        "0: quiet, 1: notice, 2: fired (the ECE of the labelled answers was above the tolerance at some time),"
        " 3: acknowledged; NaN: evidence is damaged",
        labels=KEY,
    )
    log_e = GaugeMetricFamily(
        "trueodds_calibration_log_evalue",
        "Natural logarithm of the evidence against a null hypothesis; it fires at log(1/alpha), 3.0 by default",
        labels=[*KEY, "null"],
    )
    age = GaugeMetricFamily(
        "trueodds_label_age_seconds", "Since the last label arrived; no series before the first", labels=KEY
    )
    for version, _, state, told in store:
        key = [version.model, version.version]
        alarm.add_metric(key, ALARM_STATES.index(told) if state else float("nan"))
        for null in NULLS:
            log_e.add_metric([*key, null], state.log_e(null) if state else float("nan"))
        if state and state.last_ms is not None:
            age.add_metric(key, max(0.0, time.time() - state.last_ms / 1000))
    return [alarm, log_e, age]


def _loaded(loaded: Iterable[tuple[str, str, str, bool]], altered: Iterable[tuple[str, str, bool]]) -> list[Metric]:
    ready = GaugeMetricFamily(
        "trueodds_version_ready", "1: loaded; 0: meant to be, and refused or not loaded yet", labels=[*KEY, "role"]
    )
    for model, version, role, is_ready in loaded:
        ready.add_metric([model, version, role], float(is_ready))
    differs = GaugeMetricFamily(
        "trueodds_version_altered", "1: its files are no longer those that were loaded; 0: they are", labels=KEY
    )
    for model, version, is_altered in altered:
        differs.add_metric([model, version], float(is_altered))
    return [ready, differs]


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
