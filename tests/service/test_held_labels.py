"""Labels whose predictions do not come: how many, since when, and from when on the report says so."""

from __future__ import annotations

import time

from service.report.notes import held_note
from service.store.rows import HeldLabels
from tests.service.app_client import Client
from tests.service.tiny_bundle import pictures
from trueodds.reports import Report
from trueodds.sums.hours import HOUR_MS


def test_they_are_counted_and_said(client: Client) -> None:
    client.predict(pictures(1))
    assert client.report()["held"] is None
    assert "trueodds_held_labels{" not in client.get("/metrics").text
    client.label([{"id": f"early-{n}", "index": 0, "model": "tiny"} for n in range(3)])
    store = client.app.state.runtime.store
    held = client.run(store.read_held())
    assert list(held) == ["tiny"] and held["tiny"].count == 3
    assert abs(held["tiny"].oldest_ms - 1000 * time.time()) < 60_000
    text = client.get("/metrics").text
    assert 'trueodds_held_labels{model="tiny"} 3.0' in text
    assert 'trueodds_held_label_age_seconds{model="tiny"}' in text
    shown = Report.model_validate(client.report()).held
    assert shown is not None and shown.labels == 3 and 1000 * shown.oldest.timestamp() == held["tiny"].oldest_ms
    assert not any("without a prediction" in caution for caution in client.report()["cautions"])


def test_the_report_waits_an_hour() -> None:
    held = HeldLabels(1200, HOUR_MS)
    assert held_note(None, 9 * HOUR_MS) == held_note(held, 2 * HOUR_MS - 1) == ""
    assert held_note(held, 2 * HOUR_MS) == (
        "1,200 labels of this model have arrived for ids without a prediction so far, the oldest on 1970-01-01 01:00:00"
        " UTC. Send predictions and labels with the same ids."
    )
    assert held_note(HeldLabels(1, 0), HOUR_MS).startswith("1 label of this model has arrived")
