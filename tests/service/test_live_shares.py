"""Class shares of many classes, live: the labelled answers before a time are the reference of those since then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from service.labels import live_shares
from service.labels.live_shares import ScoredRows, ShareRows, describe
from service.store.rows import LabelSelection, Version, VoidCounts, Voiding
from service.store.work.statements import Query, Work
from service.store.work.voiding import record_voiding
from tests.service.app_client import Client
from trueodds.calibrators import Identity
from trueodds.metrics import prior_shift, softmax
from trueodds.sums.inputs import Array

WHOSE = {"model": "mail", "version": "7"}
CLASSES = ["ham", "news", "spam"]
THEN, NOW = datetime.now(UTC) - timedelta(days=3), datetime.now(UTC) - timedelta(hours=2)
SINCE = (NOW - timedelta(hours=2)).isoformat()
EVEN, OTHER = (0.4, 0.3, 0.3), (0.7, 0.2, 0.1)


def drawn(count: int, shares: tuple[float, ...], seed: int) -> tuple[Array, Any]:
    """Probabilities that are calibrated for even shares, and labels by other shares."""
    rng = np.random.default_rng(seed)
    y_N = rng.choice(3, count, p=shares)
    z_NC = 2 * np.eye(3)[y_N] + rng.normal(size=(count, 3))
    return softmax(2 * z_NC + np.log(EVEN)), y_N


def send(client: Client, p_NC: Array, prefix: str, when: datetime, **more: Any) -> list[str]:
    ids = [f"{prefix}{n}" for n in range(len(p_NC))]
    rows = [
        {"id": id_, "probabilities": p, "time": when.isoformat(), **more}
        for id_, p in zip(ids, p_NC.tolist(), strict=True)
    ]
    client.send("/observe", {"observations": rows, "classes": CLASSES, **WHOSE})
    return ids


def label(client: Client, ids: list[str], y_N: Any) -> None:
    client.label([{"id": id_, "index": int(y), "model": "mail"} for id_, y in zip(ids, y_N, strict=True)])


@pytest.fixture
def told(client: Client) -> tuple[Client, list[str], Array, Any]:
    """600 labelled answers of three days ago, and 800 of today without labels."""
    p_NC, y_N = drawn(600, EVEN, 1)
    label(client, send(client, p_NC, "old", THEN), y_N)
    new_NC, new_N = drawn(800, OTHER, 2)
    return client, send(client, new_NC, "new", NOW), new_NC, new_N


def test_an_observed_version_of_three_classes(told: tuple[Client, list[str], Array, Any]) -> None:
    client, _, new_NC, new_N = told
    assert client.report(model="mail")["class_shares"] is None
    found = client.report(model="mail", since=SINCE)["class_shares"]
    assert (found["answers"], found["reference_rows"], found["refused"]) == (800, 600, None)
    exact = prior_shift(new_NC, *drawn(600, EVEN, 1))
    for one, twin, truth in zip(found["classes"], exact.em, np.bincount(new_N) / 800, strict=True):
        assert one["em"]["value"] == pytest.approx(twin.value, abs=1e-3)
        assert one["em"]["lower"] - 0.01 <= truth <= one["em"]["upper"] + 0.01
    assert found["changed_classes"] == ["ham", "spam"] or found["changed_classes"] == CLASSES
    assert "The reference rows are the answers with a label from before." in found["reading"]
    page = client.get("/calibration-report", params={"model": "mail", "since": SINCE, "format": "html"}).text
    assert 'id="class-shares-table"' in page and "answers with a label from before" in page
    text = client.get("/metrics").text
    line = next(row for row in text.splitlines() if row.startswith("trueodds_class_share{") and 'class="ham"' in row)
    assert float(line.split()[-1]) == pytest.approx(found["classes"][0]["em"]["value"], abs=1e-6)
    assert client.report(model="mail", since=SINCE, **{"class": "ham"})["class_shares"] is None


def test_voided_labels_leave_the_metrics_at_once(told: tuple[Client, list[str], Array, Any]) -> None:
    """Other changes count after ten minutes."""
    client = told[0]
    assert "trueodds_class_share{" in client.get("/metrics").text
    client.send("/admin/labels/void", {"model": "mail", "since": THEN.isoformat(), "who": "Ada", "why": "wrong file"})
    assert client.report(model="mail", since=SINCE)["class_shares"]["classes"] == []
    assert "trueodds_class_share{" not in client.get("/metrics").text


def test_an_estimate_from_the_middle_of_a_voiding_is_not_kept(
    told: tuple[Client, list[str], Array, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large voiding takes several transactions. Metrics may be read between two of them."""
    client, runtime = told[0], told[0].app.state.runtime
    times: list[int] = []
    version = client.run(runtime.version("mail", "7"))

    async def shares_since(*_: Any) -> None:
        times.append(1)

    def part_of_voiding() -> Work[None]:
        ((key,),) = yield Query("SELECT max(key) FROM versions")
        yield record_voiding(key, Voiding(LabelSelection(since_ms=0), 7, "Ada", "wrong file", VoidCounts(removed=9)))

    monkeypatch.setattr(live_shares, "shares_since", shares_since)
    for number in (1, 2):
        client.run(runtime.store.database.write(part_of_voiding))
        for _ in range(2):
            client.run(live_shares.shares_of_last_day(runtime, version))
        assert len(times) == number


@pytest.mark.parametrize("agree", [True, False])
def test_labels_withdraw_the_shares(told: tuple[Client, list[str], Array, Any], agree: bool) -> None:
    client, ids, new_NC, new_N = told
    wrong_N = (new_NC.cumsum(axis=1) > np.random.default_rng(3).random((800, 1))).argmax(axis=1)
    label(client, ids[:400], new_N[:400] if agree else (wrong_N[:400] + 1) % 3)
    found = client.report(model="mail", since=SINCE)["class_shares"]
    assert (found["withdrawn"] is None) == bool(found["classes"]) == agree
    assert found["condition"].endswith("400 labels so far do not contradict it." if agree else "Labels contradict it.")


def test_what_gives_no_shares_is_named(told: tuple[Client, list[str], Array, Any]) -> None:
    client, _, _, _ = told

    def refused(**query: Any) -> str:
        return str(client.report(**{"model": "mail", "since": SINCE} | query)["class_shares"]["refused"])

    early = (THEN - timedelta(days=1)).isoformat()
    assert "no answer before this time has a label" in refused(since=early)
    rows = [{"id": f"c{n}", "predicted": "ham", "confidence": 0.9, "time": NOW.isoformat()} for n in range(60)]
    client.send("/observe", {"observations": rows, "classes": CLASSES, "model": "sure", "version": "1"})
    assert "the confidence of the predicted class only" in refused(model="sure")
    p_NC, y_N = drawn(100, EVEN, 5)
    chances = [0.1 if n % 2 else 0.5 for n in range(100)]
    rows = [
        {
            "id": f"q{n}",
            "probabilities": p,
            "time": THEN.isoformat(),
            "propensity": chance,
            "model": "m",
            "version": "1",
        }
        for n, (p, chance) in enumerate(zip(p_NC.tolist(), chances, strict=True))
    ]
    client.send("/observe", {"observations": rows, "classes": CLASSES})
    client.label([{"id": f"q{n}", "index": int(y), "model": "m"} for n, y in enumerate(y_N)])
    rows = [{**row, "id": f"n{row['id']}", "time": NOW.isoformat()} for row in rows]
    client.send("/observe", {"observations": rows, "classes": CLASSES})
    assert "drawn with different propensities" in refused(model="m")


def test_labels_of_the_surest_answers_are_no_reference(client: Client) -> None:
    p_NC, y_N = drawn(800, EVEN, 1)
    ids = send(client, p_NC, "old", THEN)
    sure_M = np.argsort(-p_NC.max(axis=1))[:400]
    label(client, [ids[n] for n in sure_M], y_N[sure_M])
    send(client, drawn(100, EVEN, 2)[0], "new", NOW)
    found = client.report(model="mail", since=SINCE)["class_shares"]
    assert "they are a selection" in found["refused"] and found["classes"] == []


def test_large_numbers_are_thinned_or_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    version = Version("m", "1", tuple(CLASSES), Identity(), metrics={})
    (p_NC, y_N), (new_NC, _) = drawn(900, EVEN, 1), drawn(700, OTHER, 2)
    rows = ShareRows(ScoredRows(new_NC, np.full(700, -1)), ScoredRows(p_NC, y_N), 700)
    assert describe(version, rows, 0.95).answers == 700
    monkeypatch.setattr(live_shares, "MOST_VALUES", 1500)
    found = describe(version, rows, 0.95)
    assert (found.answers, found.reference_rows) == (500, 500)
    assert "a random sample of the 700 since then" in found.reading
    monkeypatch.setattr(live_shares, "MOST_READ", 50)
    send(client, new_NC, "new", NOW)
    refused = client.report(model="mail", since=SINCE)["class_shares"]["refused"]
    assert refused == "these are more than 50; give a later time (since)"
