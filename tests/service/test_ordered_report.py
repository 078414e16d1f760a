"""Ordered classes of a service: how they are stated, and the figures of the live report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.metrics.test_ordered import rows
from tests.service.app_client import Client
from tests.service.test_observe import observe, refusal
from trueodds import metrics
from trueodds.metrics import OrderedSums

WHOSE = {"model": "stars", "version": "3"}
STARS = ["1", "2", "3", "4", "5"]
WAYS: list[dict[str, Any]] = [
    {"classes": STARS, "ordered": True},
    {"classes": {"names": STARS, "ordered": True}},
]


def stars(count: int = 300) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    p_NC, labels_N = rows(count, 5, temperature=2.0)
    return p_NC, labels_N, [{"id": f"s{n}", "probabilities": row} for n, row in enumerate(p_NC.tolist())]


def label(client: Client, labels_N: np.ndarray) -> None:
    client.label([{"id": f"s{n}", "label": STARS[k], "model": "stars"} for n, k in enumerate(labels_N)])


@pytest.mark.few(1)
@pytest.mark.parametrize("way", [*WAYS, {"query": True}], ids=["key", "classes", "query"])
def test_the_live_report_has_the_figures_of_the_rows(client: Client, way: dict[str, Any]) -> None:
    p_NC, labels_N, answers = stars()
    query = {"classes": ",".join(STARS), "ordered": "true"} if "query" in way else {}
    observe(client, {"observations": answers, **WHOSE, **({} if query else way)}, **query)
    before = client.report(**WHOSE)["ordered"]
    assert (before["levels"], before["rps"], before["at_least"]) == (STARS, None, [])
    label(client, labels_N)
    sums = OrderedSums.from_probabilities(p_NC.astype(np.float32).astype(np.float64), labels_N)
    found = client.report(**WHOSE, binning="mass")["ordered"]
    score, bias = metrics.rps_interval(sums), metrics.level_bias(sums, anytime=True)
    assert found["rps"] == pytest.approx(score.value, rel=1e-5)
    assert (found["rps_lower"], found["rps_upper"]) == pytest.approx((score.lower, score.upper), rel=1e-5)
    limits = found["level_bias"], found["level_bias_lower"], found["level_bias_upper"]
    assert limits == pytest.approx((bias.bias, bias.lower, bias.upper), abs=1e-4)
    for one, other in zip(found["at_least"], metrics.at_least(sums, binning="mass"), strict=True):
        assert one["name"] == STARS[other.level] and one["share"] == pytest.approx(other.share)
        interval = metrics.ece_interval(sums.at_least[other.level - 1], binning="mass")
        assert one["ece"] == pytest.approx(interval.ece, abs=1e-3)
        assert one["more_than_chance"] == other.more_than_chance
    window = client.report(**WHOSE, since=0)["ordered"]
    once = metrics.level_bias(sums)
    assert (window["level_bias_lower"], window["level_bias_upper"]) == pytest.approx((once.lower, once.upper), abs=1e-4)
    for part in ({"last": 50}, {"class": "3"}):
        assert client.report(**WHOSE, **part)["ordered"] is None
    page = client.get("/calibration-report", params=WHOSE, headers={"accept": "text/html"}).text
    assert 'id="at-least-table"' in page and found["reading"].replace('"', "&#34;") in page


def test_the_order_is_kept_and_need_not_be_repeated(client: Client) -> None:
    _, labels_N, answers = stars(60)
    observe(client, {"observations": answers[:30], **WHOSE, **WAYS[0]})
    observe(client, {"observations": answers[30:], **WHOSE})
    label(client, labels_N)
    assert client.report(**WHOSE)["ordered"]["rps"] > 0


def test_a_version_without_an_order_keeps_none(client: Client) -> None:
    _, _, answers = stars(20)
    observe(client, {"observations": answers[:10], **WHOSE, "classes": STARS})
    assert client.report(**WHOSE)["ordered"] is None
    message = refusal(client, 422, {"observations": answers[10:], **WHOSE, **WAYS[0]})
    assert "the classes of stars/3 are not ordered, but the call says so" in message


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (
            {"classes": ["1", "10", "2", "3", "4"], "ordered": True},
            "numbers that do not ascend; the lowest level comes",
        ),
        ({"classes": {"names": STARS}}, 'an object has {"names": [...], "ordered": true}'),
        ({"classes": {"names": STARS, "ordered": True}, "ordered": True}, "ordered is given twice"),
        ({"classes": STARS, "ordered": 1}, "ordered is 1; allowed are true and false"),
        ({"classes": {"names": "12345", "ordered": True}}, "classes is '12345'; expected at least two different names"),
    ],
)
def test_what_is_refused(client: Client, beside: dict[str, Any], words: str) -> None:
    _, _, answers = stars(5)
    body = {"observations": answers, **WHOSE, **beside}
    answer = client.post("/observe", json=body)
    assert answer.status_code == 422 and words in answer.text.replace('\\"', '"'), answer.text


def test_confidences_alone_have_no_order(client: Client) -> None:
    body = {"observations": [{"id": "a", "confidence": 0.8, "predicted": "2"}], **WHOSE, **WAYS[0]}
    assert "ordered classes need the numbers of all classes" in refusal(client, 422, body)
