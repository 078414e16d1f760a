"""Acknowledging an alarm by JSON and by the page's form, and what is said where the evidence is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from service.alarm import ALARM
from service.alarm import watch as watching
from service.http import hashed_keys
from tests.service.alarms import ACKNOWLEDGE, alarm, all_wrong, fire
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.tiny_bundle import pictures

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)


def test_damaged_evidence_leaves_the_rest_of_the_report(client: Client) -> None:
    all_wrong(client, 30)
    name = client.report()["version"]
    store = client.app.state.runtime.store
    until(lambda: client.run(store.read_state("tiny", name, ALARM)))
    client.run(store.update_state("tiny", name, ALARM, lambda tree, block: {**tree, "labels": -1}))
    report = client.report()
    assert report["alarm"] is None and report["labelled"] == 30
    assert "The alarm is unavailable" in report["cautions"][-1] and report["cautions"][-1] in report["reading"]
    assert f'trueodds_calibration_alarm{{model="tiny",version="{name}"}} NaN' in client.get("/metrics").text
    body = {"model": "tiny", "version": name, "who": "Ada", "why": "seen"}
    assert "restore the store from a backup" in client.refusal(ACKNOWLEDGE, body, 503)


def test_acknowledging(client: Client) -> None:
    quiet = client.predict(pictures(1)) and client.report()["version"]
    body = {"model": "tiny", "version": quiet, "who": " Ada ", "why": "recalibrating"}
    nothing = client.post(ACKNOWLEDGE, json=body)
    assert nothing.status_code == 409 and "the alarm of tiny/" in nothing.text and "has not fired" in nothing.text
    name = fire(client)
    until(lambda: alarm(client)["nulls"][1]["state"] == "fired")
    refusals: list[tuple[dict[str, Any], int, str]] = [
        ({"version": "other"}, 404, "there is no tiny/other"),
        ({"who": "  "}, 422, "who: String should have at least 1 character"),
        ({"why": None}, 422, "why: Input should be a valid string"),
        ({"why": "a\0b"}, 422, "why: it holds U+0000 (a control character) as character 2; allowed is one line"),
        ({"why": "two\nlines"}, 422, "why: it holds U+000A (a control character) as character 4"),
        ({"why": "a\u202eb"}, 422, "why: it holds U+202E (RIGHT-TO-LEFT OVERRIDE)"),
        ({"who": "Ada\x9b"}, 422, "who: it holds U+009B (a control character) as character 4"),
        ({"who": "Ada\n"}, 422, "who: it holds U+000A"),
        (
            {"null": "gap"},
            422,
            "null: Input should be 'ece', 'positive', 'levels' or 'point'; expected model, version, who and why",
        ),
        ({"more": 1}, 422, "more: Extra inputs are not permitted; expected model, version, who and why"),
    ]
    for change, status, words in refusals:
        assert words in client.refusal(ACKNOWLEDGE, {**body, **change}, status)
    assert client.post(ACKNOWLEDGE, content=b"x", headers={"content-type": "text/plain"}).status_code == 415
    one = client.post(ACKNOWLEDGE, json={**body, "null": "point"}).json()
    assert [null["state"] for null in one["nulls"]] == ["fired", "acknowledged"]
    both = client.post(ACKNOWLEDGE, json={**body, "who": "Bob"}).json()
    assert (both["state"], both["nulls"][0]["acknowledged"]["who"]) == ("acknowledged", "Bob")
    assert both["nulls"][1]["acknowledged"]["who"] == "Ada"
    assert alarm(client) == both
    assert "Bob has already acknowledged the alarm" in client.refusal(ACKNOWLEDGE, body, 409)
    assert f'trueodds_calibration_alarm{{model="tiny",version="{name}"}} 3.0' in client.get("/metrics").text


def test_acknowledging_by_a_form_of_our_own_page(serve: Callable[..., Client]) -> None:
    key, hashed = hashed_keys.make()
    other, _ = hashed_keys.make()
    client = serve({"admin_key_hash": hashed, "feedback_key_hash": ""})
    name = fire(client)
    form = {"model": "tiny", "version": name, "who": "Ada", "why": "Käse & more", "null": "", "key": ""}

    def post(change: dict[str, str], headers: dict[str, str] | None = None) -> Any:
        return client.post(ACKNOWLEDGE, content=urlencode({**form, **change}), headers={**FORM, **(headers or {})})

    assert post({}).status_code == 401 and post({"key": other}).status_code == 401
    refused = post({"key": key}, {"origin": "https://evil.example"})
    assert refused.status_code == 403 and "not of this service" in refused.text
    assert post({"key": key}, {"origin": "null"}).status_code == 403
    assert post({"key": key, "who": ""}).status_code == 422
    assert client.post(ACKNOWLEDGE, content="who=a&who=b", headers=FORM).status_code == 422
    assert client.post(ACKNOWLEDGE, content="who=%ff", headers=FORM).status_code == 422
    done = post({"key": key}, {"origin": "http://service"})
    assert (done.status_code, done.headers["location"]) == (
        303,
        f"/calibration-report?model=tiny&version={name}",
    )
    assert client.report()["alarm"]["nulls"][0]["acknowledged"]["why"] == "Käse & more"
    by_header = {"authorization": f"Bearer {key}"}
    assert (
        post({}, by_header).status_code == 409 and post({"key": key}, {"authorization": "Bearer x"}).status_code == 401
    )


def test_two_acknowledge_at_once(client: Client) -> None:
    name = fire(client)
    until(lambda: alarm(client)["nulls"][1]["state"] == "fired")

    async def both() -> list[int]:
        body = {"model": "tiny", "version": name, "why": "seen"}
        calls = [client.http.post(ACKNOWLEDGE, json={**body, "who": who}) for who in ("Ada", "Bob")]
        return sorted(answer.status_code for answer in await asyncio.gather(*calls))

    assert client.run(both()) == [200, 409]
