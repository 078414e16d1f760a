"""Re-arming an alarm: new evidence of later labels, who did it and why, and its price."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import numpy as np
import pytest

from service.alarm import watch as watching
from service.alarm.evidence import StoredAcknowledgement
from service.alarm.readings import alarm_of
from service.alarm.state import AlarmState
from service.http import hashed_keys
from service.http.signed_body import FORM
from service.settings import Settings
from tests.service.alarms import ACKNOWLEDGE, alarm, all_wrong, fire, labels
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from trueodds.sums.answers import AnswerSums

REARM = "/admin/alarm/rearm"
ADA = {"who": "Ada", "why": "the camera is replaced."}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)


def test_it_watches_anew_and_may_fire_again(serve: Callable[..., Client], hook: Hook) -> None:
    client = serve({"alarm_webhook": hook.url})
    all_wrong(client, 10)
    body = {"model": "tiny", "version": client.report()["version"], **ADA}
    assert "has not fired after 10 labels; it is still armed" in client.refusal(REARM, body, 409)
    fire(client)
    until(lambda: alarm(client)["nulls"][1]["state"] == "fired")
    assert "(ece, point) is not acknowledged; send POST /admin/alarm/ack" in client.refusal(REARM, body, 409)
    assert client.post(ACKNOWLEDGE, json=body).status_code == 200
    before = alarm(client)["nulls"][0]
    armed = client.post(REARM, json=body).json()
    assert armed["state"] == "quiet" and [null["labels"] for null in armed["nulls"]] == [0, 0]
    assert armed["reading"].startswith(
        "No alarm: no label has been evaluated since it was re-armed. Ada re-armed it on 2"
    )
    assert (
        "UTC: the camera is replaced. The evidence uses the labels since then. Each watch has its own false alarm"
        " rate: over 2 watches, at most 10% of calibrated versions alarm falsely."
    ) in armed["reading"]
    (ended,) = armed["rearmings"]
    assert (ended["who"], ended["labels"], ended["fired_at"]) == ("Ada", 90, before["fired_at"])
    assert alarm(client) == armed
    assert client.post(REARM, json=body).status_code == 409
    all_wrong(client, 80, seed=7)
    until(lambda: alarm(client)["state"] == "fired")
    assert alarm(client)["nulls"][0]["labels"] == 80
    until(lambda: len(hook.calls) == 2)
    page = client.get("/calibration-report", headers={"accept": "text/html"}).text
    assert "Ada re-armed it on" in page


def test_the_page_has_a_form_for_it(serve: Callable[..., Client]) -> None:
    key, hashed = hashed_keys.make()
    client = serve({"admin_key_hash": hashed, "feedback_key_hash": ""})
    version = fire(client)
    form, headers = {"model": "tiny", "version": version, "key": key, **ADA}, {"content-type": FORM}
    assert client.post(ACKNOWLEDGE, content=urlencode(form), headers=headers).status_code == 303
    page = client.get("/calibration-report", headers={"accept": "text/html"}).text
    assert f'action="{REARM}"' in page and f'action="{ACKNOWLEDGE}"' not in page
    wrong = client.post(REARM, content=urlencode({**form, "key": "wrong"}), headers=headers)
    assert wrong.status_code == 401
    elsewhere = client.post(REARM, content=urlencode(form), headers={**headers, "origin": "https://other.example"})
    assert elsewhere.status_code == 403
    done = client.post(REARM, content=urlencode(form), headers=headers)
    assert done.status_code == 303 and done.headers["location"].startswith("/calibration-report?model=tiny&version=")
    page = client.get(done.headers["location"], headers={"accept": "text/html"}).text
    assert f'action="{REARM}"' not in page and "Ada re-armed the alarm" in page


def test_refusals(serve: Callable[..., Client]) -> None:
    key, hashed = hashed_keys.make()
    client = serve({"admin_key_hash": hashed, "feedback_key_hash": ""})
    version = fire(client)
    body = {"model": "tiny", "version": version, **ADA}
    assert client.post(REARM, json=body).status_code == 401
    headers = {"authorization": f"Bearer {key}"}
    for change, status, words in (
        ({"version": "other"}, 404, "there is no tiny/other"),
        ({"why": " "}, 422, "why: String should have at least 1 character"),
        ({"null": "ece"}, 422, "null: Extra inputs are not permitted; expected model, version, who and why"),
    ):
        refused = client.post(REARM, json={**body, **change}, headers=headers)
        assert (refused.status_code, words in refused.text) == (status, True), refused.text


def test_a_watch_is_that_of_a_fresh_start_on_its_labels() -> None:
    """With the settings of its day; and a void label of a watch has that watch alone begin anew."""
    first, second = Settings(), Settings(alarm_alpha=0.01, alarm_tolerance=0.05)
    seen = StoredAcknowledgement(who="Ada", why="seen", at_ms=1)
    state = AlarmState.start(first).take(labels([0.9] * 65, [False] * 65)).acknowledge(("ece", "point"), seen)
    armed = state.rearm("Ada", "mended", 5, second)
    rng = np.random.default_rng(0)
    confidence_N = rng.uniform(0.5, 1, 47)
    later = labels(confidence_N, rng.random(47) < confidence_N, first=65)
    fresh = AlarmState.start(second).take(later)
    watched = armed.take(later)
    kept = {"start_sequence": 65, "rearmings": armed.rearmings}
    assert watched == fresh.model_copy(update=kept) and AlarmState.read(watched.tree(), first) == watched
    assert watched.anew(65) is None and watched.anew(113) is None
    anew = watched.anew(70)
    assert anew is not None and anew.take(later) == watched
    reading = alarm_of(watched, second, model="m", sums=AnswerSums.zero()).reading
    assert "over 2 watches, at most 6% of calibrated versions alarm falsely" in reading
