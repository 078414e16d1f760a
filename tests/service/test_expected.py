"""Expected precision and recall before labels come, at each door of the service, until labels take them away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Serve
from trueodds.bundle import ActAlone
from trueodds.metrics import expected_decisions
from trueodds.reports.before_labels.expected_results import CONDITION
from trueodds.reports.schemas.alarm import Alarm, WeightedEvidence

WHOSE = {"model": "cards", "version": "1"}


def sent(client: Any, p_N: np.ndarray) -> None:
    rows = [{"id": f"r{n}", "probabilities": {"ok": 1 - p, "fraud": p}} for n, p in enumerate(p_N.tolist())]
    body = {"observations": rows, **WHOSE, "classes": ["ok", "fraud"], "positive": "fraud"}
    assert client.post("/observe", json=body).status_code == 200


def gauges(client: Any, alert: str) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    found = [
        line.rpartition(" ") for line in lines if line.startswith("trueodds_expected_") and f'alert="{alert}"' in line
    ]
    return {name.partition("{")[0].removeprefix("trueodds_expected_"): float(value) for name, _, value in found}


@pytest.mark.parametrize("factor", [1.0, 0.4])
def test_report_page_and_metrics(serve: Serve, factor: float) -> None:
    """Before labels: numbers and condition. After 600 labels: still there if they agree, else withdrawn everywhere."""
    client: Any = serve({"alert_threshold": 0.3})
    rng = np.random.default_rng(0)
    p_N = rng.beta(0.6, 2, 2000)
    sent(client, p_N)
    (part,) = client.read("/calibration-report", **WHOSE)["expected"]
    assert (part["about"], part["label"], part["threshold"], part["answers"]) == ("positive", "fraud", 0.3, 2000)
    (one,) = (row for row in part["decisions"] if row["threshold"] == 0.3)
    own = expected_decisions(p_N, at=[0.3])[0]
    assert (one["alerts"], one["precision"]["value"]) == (own.alerts, pytest.approx(own.precision.value, abs=1e-3))
    page = client.get("/calibration-report", params={**WHOSE, "format": "html"}).text
    assert CONDITION in page and "No label has tested it yet." in page and f"{own.precision.value:.1%}" in page
    shown = gauges(client, "positive")
    assert shown["precision"] == one["precision"]["value"] and shown["recall_lower"] == one["recall"]["lower"]
    assert shown["alert_share"] == own.alert_share and shown["withdrawn"] == 0

    labels = ["fraud" if y else "ok" for y in rng.random(600) < factor * p_N[:600]]
    client.label([{"id": f"r{n}", "label": label} for n, label in enumerate(labels)])
    (part,) = client.read("/calibration-report", **WHOSE)["expected"]
    page = client.get("/calibration-report", params={**WHOSE, "format": "html"}).text
    shown = gauges(client, "positive")
    is_off = factor != 1
    assert (part["withdrawn"] is not None) == (part["decisions"] == []) == is_off
    assert ("Withdrawn: there is no expected precision" in page) == is_off
    assert ("600 labels so far do not contradict it." in page) == (not is_off)
    assert (shown["withdrawn"], np.isnan(shown["precision"]), np.isnan(shown["alert_share"])) == (
        is_off,
        is_off,
        is_off,
    )
    # A later window without any label loses its number as well; a window of labels and one tag have none.
    later = client.read("/calibration-report", **WHOSE, since="2020-01-01T00:00Z")["expected"]
    assert (later[0]["withdrawn"] is not None) == is_off
    assert client.read("/calibration-report", **WHOSE, last=100)["expected"] == []
    assert client.read("/calibration-report", **WHOSE, **{"class": "fraud"})["expected"] == []


def test_weighted_evidence_alone_takes_the_numbers_away_in_the_report_too() -> None:
    """/metrics withdraws them in each state of the alarm but quiet, of which a fired weighted test is one."""
    numbers: dict[str, Any] = {
        "tolerance": 0.02,
        "floor": 0.01,
        "threshold": 4.6,
        "labels": 9,
        "left_out": 0,
        "log_e": 5.0,
    }
    weighted = WeightedEvidence(statement="It is within 0.02", state="fired", p_value=0.01, reading="", **numbers)
    assert Alarm(state="notice", reading="", nulls=[], weighted=weighted).refuted_statement == weighted.statement
    quiet = weighted.model_copy(update={"state": "quiet"})
    assert Alarm(state="quiet", reading="", nulls=[], weighted=quiet).refuted_statement is None


def test_answers_that_act_alone(serve: Serve) -> None:
    """The threshold is that of the card's promise."""
    from tests.service.tiny_bundle import pictures

    client: Any = serve(act_alone=ActAlone.of_text("threshold=.8,risk=.05,confidence=.95"))
    answered = client.predict(pictures(60))
    (part,) = client.read("/calibration-report")["expected"]
    assert part["about"] == "acting" and part["threshold"] == pytest.approx(0.8, abs=1 / 1500)
    acted = [p["confidence"] for p in answered if p["decision"] == "act"]
    assert part["decisions"][0]["alerts"] == len(acted)
    assert part["decisions"][0]["precision"]["value"] == pytest.approx(np.mean(acted), abs=1e-3)
    assert gauges(client, "acting")["alert_share"] == pytest.approx(len(acted) / 60)
