"""Counts per version in one object, for statistics other than Prometheus's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import Metric


@dataclass
class Statistics:
    """Counts of a version since the start. Seconds are sums over the counted events."""

    rows: int = 0
    batches: int = 0
    last_time: float = 0.0
    """Unix time of the last batch; 0 if there was none."""
    model_batches: int = 0
    """Batches that the model has scored, stored or not."""
    model_seconds: float = 0.0
    answers: int = 0
    answer_seconds: float = 0.0
    failures: int = 0
    failure_seconds: float = 0.0


_FIELDS = {
    "trueodds_batch_images_sum": "rows",
    "trueodds_batch_images_count": "batches",
    "trueodds_last_batch_timestamp_seconds": "last_time",
    "trueodds_model_seconds_count": "model_batches",
    "trueodds_model_seconds_sum": "model_seconds",
    "trueodds_request_seconds_sum": "answer_seconds",
    "trueodds_failed_request_seconds_total": "failure_seconds",
}


def by_version(families: Iterable[Metric]) -> dict[tuple[str, str], Statistics]:
    """Return the counts by model and version from metrics with these labels."""
    found: dict[tuple[str, str], Statistics] = defaultdict(Statistics)
    for sample in (sample for family in families for sample in family.samples):
        labels, field = sample.labels, _FIELDS.get(sample.name)
        if sample.name == "trueodds_requests_total":
            field = "answers" if int(labels["status"]) < 400 else "failures"
        if field and labels.get("model"):
            of_version = found[labels["model"], labels["version"]]
            kind = type(getattr(of_version, field))
            setattr(of_version, field, getattr(of_version, field) + kind(sample.value))
    for of_version in found.values():  # all requests are timed together, and failed ones also separately
        of_version.answer_seconds = max(0.0, of_version.answer_seconds - of_version.failure_seconds)
    return dict(found)
