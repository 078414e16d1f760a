"""Prometheus metrics of one application, in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pipeline.metrics import ece
from service.records import LabelCounts, StoredSums

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Telemetry:
    """Counters of this process; the gauges come from the store when they are read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter("trueodds_requests", "Requests", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "trueodds_request_seconds", "Time to answer", ["route"], registry=registry, buckets=SECONDS
        )
        self._batches = Histogram(
            "trueodds_batch_images", "Images the model took at once", registry=registry, buckets=SIZES
        )
        self._predictions = Counter("trueodds_predictions", "Predictions stored", registry=registry)
        self._labels = Counter("trueodds_labels", "Labels accepted, by outcome", ["outcome"], registry=registry)
        key = ["model", "version"]
        self._answers = Gauge("trueodds_answers", "Predictions in the store", key, registry=registry)
        self._labelled = Gauge("trueodds_labelled", "Predictions with a label", key, registry=registry)
        self._ece = Gauge("trueodds_ece", "Plug-in ECE, 15 bins; NaN without labels", key, registry=registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, size: int) -> None:
        self._batches.observe(size)

    def predictions(self, count: int) -> None:
        self._predictions.inc(count)

    def labels(self, counts: LabelCounts) -> None:
        for outcome in ("stored", "already_known", "corrected"):
            self._labels.labels(outcome).inc(getattr(counts, outcome))

    def sums(self, model: str, version: str, sums: StoredSums) -> None:
        labelled = sums.labelled.n
        self._answers.labels(model, version).set(sums.answers)
        self._labelled.labels(model, version).set(labelled)
        self._ece.labels(model, version).set(ece(sums.labelled) if labelled else float("nan"))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)
