"""GET /audit: the worst group of stored answers, what it looks at and leaves out, and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import numpy as np
import pytest

from service.report.addresses import AUDITED
from service.report.audit_route import DAYS, FEATURES
from tests.service.app_client import Client
from tests.service.conftest import Serve
from trueodds.evaluation.worst_group import FEWEST_ROWS, worst_group

ROWS = 1_500
WHOSE: dict[str, Any] = {"model": "mail", "version": "7", "classes": "ham,spam"}
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday


def answers(off: float, seed: int = 0, count: int = ROWS) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Answers of two classes over a week, and their labels; those with the tag `night` are wrong more often."""
    rng = np.random.default_rng(seed)
    p_N, tag_N = rng.uniform(0.6, 0.95, count), rng.choice(["day", "night", ""], count)
    right_N = rng.random(count) < p_N - off * (tag_N == "night")
    top_N = rng.random(count) < 0.5
    rows, labels = [], []
    for k, (p, tag, right, top) in enumerate(zip(p_N.tolist(), tag_N.tolist(), right_N, top_N, strict=True)):
        probabilities = [p, 1 - p] if top else [1 - p, p]
        time = BEGIN.timestamp() + 6 * 86_400 * k / count
        row = {"id": f"a{k}", "probabilities": probabilities, "time": time}
        rows.append({**row, "tag": tag} if tag else row)
        labels.append({"id": f"a{k}", "label": "ham" if top == right else "spam"})
    return rows, labels


def fill(client: Client, off: float, **more: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    rows, labels = answers(off, **more)
    client.send("/observe", {"observations": rows}, **WHOSE)
    client.label(labels)
    return rows, labels


def refusal(client: Client, status: int = 422, **query: Any) -> str:
    error = client.read("/audit", status, **{"model": "mail", **query})["error"]
    return f"{error['code']}: {error['message']}"


def test_a_bad_tag_is_found_and_said_in_words(client: Client) -> None:
    rows, labels = fill(client, 0.35)
    found = client.read("/audit", model="mail")
    (group,) = found["groups"]
    assert found["is_found"] and 'tag is "night"' in group["words"] and group["lower"] < -0.35 < group["upper"] < 0
    assert found["rows"] == found["labels"] == ROWS and found["features"] == [*FEATURES]
    assert found["reading"].startswith('A group is off by more than 0.02:\n- tag is "night" ')
    assert found["notes"][0] == "Looked at 1,500 labelled answers of mail/7."
    assert found["first"].startswith("2026-03-02T00:00:00") and found["last"].startswith("2026-03-07T23")
    p_N = np.array([max(row["probabilities"]) for row in rows])
    top = ["ham" if row["probabilities"][0] > 0.5 else "spam" for row in rows]
    times = [datetime.fromtimestamp(row["time"], UTC) for row in rows]
    features: dict[str, Any] = {
        "tag": [row.get("tag") for row in rows],
        "predicted": top,
        "confidence": p_N,
        "hour": [time.hour for time in times],
        "weekday": [time.strftime("%A") for time in times],
    }
    assert set(features["weekday"]) < set(DAYS)
    right = [name == label["label"] for name, label in zip(top, labels, strict=True)]
    direct = worst_group(p_N, right, features)
    assert group["log_e"] == pytest.approx(direct.groups[0].log_e) and group["rows"] == direct.groups[0].rows
    part = client.read("/audit", model="mail", features="hour,weekday", swap="true", seed=4, last=900, depth=1)
    assert part["rows"] == part["labels"] == 900 and part["threshold"] == 40 and len(part["groups"]) == 2
    assert {one["feature"] for group in part["groups"] for one in group["conditions"]} <= {"hour", "weekday"}
    window = client.read("/audit", model="mail", since="2026-03-05", until="2026-03-06")
    assert window["rows"] == 250 and window["notes"][0].endswith("1,250 of the 1,500 last labels are of other times.")


def test_the_page_links_to_the_audit(client: Client) -> None:
    rows, labels = answers(0.0, count=60)
    client.send("/observe", {"observations": rows}, **WHOSE)
    page = {"model": "mail", "format": "html"}
    client.label(labels[:39])
    assert "/audit?" not in client.get("/calibration-report", params=page).text
    client.label(labels[39:])
    (link,) = re.findall(r'href="(/audit\?[^"]+)"', client.get("/calibration-report", params=page).text)
    assert client.read(unescape(link))["rows"] == 60
    assert FEWEST_ROWS == AUDITED


def test_sound_answers_get_no_group(client: Client) -> None:
    fill(client, 0.0)
    found = client.read("/audit", model="mail")
    assert not found["is_found"] and found["reading"].startswith("No group is shown to be off by more than 0.02.")


def test_labels_with_unequal_propensities_are_thinned_within_the_group(client: Client) -> None:
    """Each tag has its own propensity. So no label of the bad tag is lost, and labels without a propensity are."""
    rng = np.random.default_rng(3)
    rows, labels = answers(0.4, count=3_000)
    for row in rows:
        row["propensity"] = {"night": 1.0, "day": 0.5}.get(row.get("tag", ""), 0.1)
    del rows[0]["propensity"]
    client.send("/observe", {"observations": rows}, **WHOSE)
    client.label([one for row, one in zip(rows, labels, strict=True) if rng.random() < row.get("propensity", 1)])
    found = client.read("/audit", model="mail")
    (group,) = found["groups"]
    assert found["is_found"] and 'tag is "night"' in group["words"] and group["rows"] == group["labels"] > 300
    assert "1 label has no propensity and is left out: no random sample." in found["notes"]
    assert found["rows"] == found["labels"] - 1
    mixed = client.read("/audit", model="mail", features="hour")
    assert mixed["groups"][0]["rows"] < mixed["groups"][0]["labels"] / 3
    assert "labels, drawn so that each answer has the same chance of one (" in mixed["reading"]


def test_labels_that_the_audit_had_not_asked_for_are_left_out(serve: Serve) -> None:
    client = serve({"audit_share": 0.5})
    rows, labels = answers(0.0, count=400)
    client.send("/observe", {"observations": rows}, **WHOSE, act_alone="threshold=.8,risk=.05,confidence=.95")
    client.label(labels)
    found = client.read("/audit", model="mail")
    assert any("left out because the audit had not asked for them" in note for note in found["notes"])
    assert found["rows"] < 300 and found["labels"] == 400


def test_refusals(client: Client) -> None:
    rows, labels = answers(0.0, count=60)
    client.send("/observe", {"observations": rows}, **WHOSE)
    assert refusal(client, 404, model="other").startswith("unknown_model: there is no other/*")
    assert refusal(client, 409).startswith("too_few_labels: 0 of the 0 labels that were read count")
    client.label(labels)
    said = refusal(client, 409, last=39)
    assert said.startswith("too_few_labels: 39 of the 39 labels") and "It takes 40 or more: send labels to POST" in said
    assert "features: unknown feature 'height'" in refusal(client, features="tag,height")
    assert "features is 'tag,tag'; name each feature once" in refusal(client, features="tag,tag")
    assert "not before until" in refusal(client, since="2026-03-06", until="2026-03-05")
    for query in ({"tolerance": "0.5"}, {"depth": "9"}, {"last": "0"}, {"alpha": "nan"}, {"depht": "3"}):
        assert refusal(client, 422, **query).startswith("invalid_parameter")
