"""Voiding labels over HTTP: which, by whom and why, and what the report and the alarm then say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.alarm import ALARM
from service.alarm import watch as watching
from service.alarm.state import AlarmState
from service.http import hashed_keys
from service.settings import Settings
from tests.service.alarms import ACKNOWLEDGE, alarm, fire, labels
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from tests.service.tiny_bundle import pictures

VOID = "/admin/labels/void"
SIGNED = {"who": "Ada", "why": "the file of another day"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)


def sent(client: Client, rows: list[dict[str, Any]], **beside: Any) -> httpx.Response:
    answer = client.post("/feedback", json={"labels": rows, **beside})
    assert answer.status_code == 200, answer.text
    return answer


def rows_of(client: Client, count: int, seed: int = 0, *, right: bool = True) -> list[dict[str, Any]]:
    predictions = client.predict(pictures(count, seed=seed))
    return [{"id": p["id"], "index": p["index"] if right else (p["index"] + 1) % 4} for p in predictions]


def test_an_import_has_a_name(client: Client) -> None:
    rows = rows_of(client, 3)
    made = sent(client, rows[:1])
    assert re.fullmatch("[0-9a-f]{16}", made.json()["import_id"])
    assert sent(client, rows[:1]).json()["import_id"] != made.json()["import_id"]
    assert sent(client, rows, import_id="mine").headers["x-import-id"] == "mine"
    header = {"x-import-id": "mine"}
    line = f'{{"id": "{rows[0]["id"]}", "index": {rows[0]["index"]}}}'.encode()
    bulk = {"content-type": "application/x-ndjson", "accept": "application/x-ndjson"}
    assert client.post("/feedback", content=line, headers={**bulk, **header}).headers["x-import-id"] == "mine"
    assert client.post("/feedback", json={**rows[0], "import_id": "mine"}, headers=header).status_code == 200
    refusals: list[tuple[dict[str, Any], Any, str]] = [
        ({"import_id": "two words"}, {}, "import_id is 'two words'; allowed are 1 to 128 printable"),
        ({"import_id": 7}, {}, "import_id is 7"),
        (
            {"import_id": "other"},
            header,
            "import_id is 'other', but the header x-import-id is 'mine'; send only one of them",
        ),
        ({}, {"x-import-id": b"\xc3\xa9"}, "the header x-import-id is"),
        ({}, [("x-import-id", "a"), ("x-import-id", "b")], "the header x-import-id is sent 2 times"),
    ]
    for body, headers, words in refusals:
        refused = client.post("/feedback", json={**rows[0], **body}, headers=headers)
        assert (refused.status_code, words in refused.text) == (422, True), refused.text


def test_labels_that_came_at_a_replica_whose_clock_is_ahead(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, now = rows_of(client, 3), time.time_ns
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: now() + 10 * 10**9)
        sent(client, rows)
    assert client.post(VOID, json={"since": now() / 1e9 - 60, **SIGNED}).json()["labels"] == 3


def test_what_an_import_did_is_undone(client: Client) -> None:
    good, bad = rows_of(client, 30), rows_of(client, 30, seed=1, right=False)
    sent(client, good, import_id="good")
    before = client.report()
    corrections = [{**row, "index": (row["index"] + 1) % 4} for row in good[:5]]
    sent(client, [*bad, *corrections], import_id="bad", correct=True)
    sent(client, [{"id": "early", "index": 0, "model": "tiny"}], import_id="bad")
    spoilt = client.report()
    assert spoilt["accuracy"] < 0.5 and spoilt["corrected"] == 5
    trial = client.post(VOID, json={"import_id": "bad", **SIGNED, "dry_run": True}).json()
    counted = {"model": "tiny", "version": before["version"], "removed": 30, "restored": 5, "kept": 0}
    assert (trial["dry_run"], trial["labels"], trial["held"], trial["versions"]) == (True, 35, 1, [counted])
    assert trial["reading"] == (
        "36 labels to void: 30 answers without any other label, 5 answers whose earlier label is restored,"
        " 1 held label without a prediction."
    )
    assert client.report()["bins"] == spoilt["bins"]
    done = client.post(VOID, json={"import_id": "bad", **SIGNED}).json()
    assert done["versions"] == trial["versions"] and done["reading"].startswith("36 labels voided: ")
    after = client.report()
    assert (after["labelled"], after["corrected"], after["answers"]) == (30, 0, 60)
    assert after["accuracy"] == before["accuracy"] == 1
    assert after["nll"] == pytest.approx(before["nll"])
    note = after["cautions"][-1]
    assert note.startswith("Ada voided 35 labels of this version on 2")
    assert "(of the import bad): the file of another day. Every number uses the remaining labels" in note
    again = client.post(VOID, json={"import_id": "bad", **SIGNED})
    assert again.status_code == 200 and again.json()["reading"] == "No label is selected, so there is nothing to void."
    assert client.report()["cautions"][-1] == note
    sent(client, bad)  # they may have labels again
    assert client.report()["labelled"] == 60


def test_refusals(client: Client) -> None:
    sent(client, rows_of(client, 2))
    refusals: list[tuple[dict[str, Any], int, str]] = [
        (
            {},
            422,
            "import_id and since are both missing, so no labels are selected; expected who, why, and",
        ),
        ({"until": "2026-01-01"}, 422, "import_id and since are both missing"),
        ({"import_id": "none"}, 404, "no label has the import id 'none'; use the id that POST /feedback returned"),
        ({"import_id": "no ne"}, 422, "import_id is 'no ne'"),
        ({"import_id": "x", "model": "other"}, 404, "there is no other/*; known are tiny/"),
        ({"since": "yesterday"}, 422, "since: 'yesterday'; allowed is ISO 8601"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, 422, "is not before until"),
        ({"import_id": "x", "who": ""}, 422, "who: String should have at least 1 character"),
        ({"import_id": "x", "ids": []}, 422, "ids: Extra inputs are not permitted"),
        ({"import_id": "x", "dry_run": "no"}, 422, "dry_run: Input should be a valid boolean"),
    ]
    for body, status, words in refusals:
        assert words in client.refusal(VOID, {**SIGNED, **body}, status)
    nothing = client.post(VOID, json={**SIGNED, "since": "2020-01-01", "until": "2020-01-02"})
    assert nothing.status_code == 200 and client.report()["labelled"] == 2
    assert client.post(VOID, json={**SIGNED, "since": "2020-01-01T00:00:00+01:00"}).json()["labels"] == 2


def test_it_takes_the_admin_key(serve: Callable[..., Client]) -> None:
    _, hashed = hashed_keys.make()
    client = serve({"admin_key_hash": hashed})
    assert client.post(VOID, json={**SIGNED, "import_id": "x"}).status_code == 401


def test_the_alarm_forgets_labels_that_are_void(serve: Callable[..., Client], hook: Hook) -> None:
    """It is quiet again, its news are not told twice, and labels that come later may fire it anew."""
    client = serve({"alarm_webhook": hook.url})
    name = fire(client)
    until(lambda: len(hook.calls) == 1)
    client.post(ACKNOWLEDGE, json={"model": "tiny", "version": name, **SIGNED})
    assert alarm(client)["state"] == "acknowledged"
    assert client.post(VOID, json={"since": 0, **SIGNED}).json()["versions"][0]["removed"] == 80
    quiet = alarm(client)
    assert (quiet["state"], quiet["nulls"][0]["labels"], quiet["nulls"][0]["log_e"]) == ("quiet", 0, 0.0)
    sent(client, rows_of(client, 80, seed=5, right=False))
    until(lambda: alarm(client)["state"] == "fired")
    until(lambda: len(hook.calls) == 2)
    assert hook.calls[1].body["id"] != hook.calls[0].body["id"]


def test_an_alarm_that_fires_on_what_remains_stays_acknowledged(client: Client) -> None:
    name = fire(client)
    sent(client, rows_of(client, 20, seed=5, right=False), import_id="more")
    until(lambda: alarm(client)["nulls"][0]["labels"] == 100)
    client.post(ACKNOWLEDGE, json={"model": "tiny", "version": name, **SIGNED})
    before = alarm(client)["nulls"][0]
    assert client.post(VOID, json={"import_id": "more", **SIGNED}).json()["labels"] == 20
    after = alarm(client)["nulls"][0]
    assert (after["labels"], after["state"]) == (80, "acknowledged")
    assert (after["fired_at"], after["acknowledged"]) == (before["fired_at"], before["acknowledged"])


def test_evidence_begins_anew_with_its_own_settings() -> None:
    tolerant = AlarmState.start(Settings(alarm_tolerance=0.1, alarm_run_length=1000))
    taken = tolerant.take(labels([0.9] * 45, [False] * 45))
    assert taken.sequence == 45 and taken.anew(46) is None
    assert taken.anew(45) == tolerant


def test_damaged_evidence_is_left_as_it_is(client: Client) -> None:
    sent(client, rows_of(client, 30), import_id="x")
    store, name = client.app.state.runtime.store, client.report()["version"]
    until(lambda: client.run(store.read_state("tiny", name, ALARM)))
    client.run(store.update_state("tiny", name, ALARM, lambda tree, block: {"form": 7}))
    assert client.post(VOID, json={"import_id": "x", **SIGNED}).json()["labels"] == 30
    assert client.run(store.read_state("tiny", name, ALARM)) == {"form": 7}
    assert client.report()["labelled"] == 0
