"""Alarms by tag and class in the service: marks, their acknowledgement and re-arming, voided labels, webhooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from service.alarm import GROUPS
from service.alarm import watch as watching
from service.alarm.evidence import Delivery, StoredAcknowledgement
from service.alarm.group_readings import group_alarms
from service.alarm.groups import GroupState, restarting_groups
from service.settings import Settings
from service.store import StoreError
from service.store.rows import LabelBlock
from tests.service.alarms import labels
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from tests.service.tiny_bundle import CLASSES, pictures
from trueodds.metrics import GroupAlarm

ACKNOWLEDGE, REARM = "/admin/alarm/groups/acknowledge", "/admin/alarm/groups/rearm"
ADA = {"who": "Ada", "why": "the camera at night"}
SETTINGS = Settings()
SEEN = StoredAcknowledgement(who="Ada", why="seen", at_ms=2 * 10**12)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)


def tagged(n: int, first: int = 0, seed: int = 0) -> LabelBlock:
    """Labels by day, by night and without a tag, of three classes. By night, four of ten answers are right."""
    rng = np.random.default_rng([seed, first])
    tags = rng.choice(["day", "night", ""], n).tolist()
    confidence_N = rng.uniform(0.8, 1, n)
    right_N = rng.random(n) < np.where(np.array(tags) == "night", 0.4, confidence_N)
    block = labels(confidence_N, right_N, first=first, predicted_N=rng.integers(0, 3, n))
    return replace(block, tags=[tag or None for tag in tags])


def ask(client: Client, n: int = 200, seed: int = 0) -> str:
    """Calibrated answers by day, and wrong ones by night; return the version."""
    instances, rng = pictures(n, seed=seed), np.random.default_rng(seed)
    for tag, rows in (("day", instances[::2]), ("night", instances[1::2])):
        answers = client.send("/predict", {"instances": rows, "tags": [tag] * len(rows)})["predictions"]
        wrong = [tag == "night" or rng.random() > answer["confidence"] for answer in answers]
        rows = [
            {"id": answer["id"], "index": (answer["index"] + is_wrong) % len(CLASSES)}
            for answer, is_wrong in zip(answers, wrong, strict=True)
        ]
        client.label(rows)
    return str(client.report()["version"])


def groups(client: Client) -> dict[str, Any]:
    part: dict[str, Any] = client.report()["groups"]
    return part


def test_the_state_is_that_of_the_library_however_the_log_is_cut() -> None:
    """Each kind has half of the false discovery rate, and each label counts for one tag and one predicted class."""
    block = tagged(400)
    whole = GroupState.start(3, SETTINGS).take(block)
    names = [[tag or ""] for tag in block.tags]
    rows = block.confidence_L, block.first_correct_L
    assert whole.tags == GroupAlarm.start(0.02, 0.025).advance(*rows, names)
    classes = [[str(k)] for k in block.predicted_L.tolist()]
    assert whole.classes == GroupAlarm.start(0.02, 0.025, 3, equal=True).advance(*rows, classes)
    parts = GroupState.start(3, SETTINGS)
    for first, end in ((0, 7), (7, 60), (60, 61), (61, 400)):
        parts = GroupState.read(json.loads(json.dumps(parts.tree())), 3, SETTINGS).take(cut(block, first, end))
    assert parts == whole
    (mark,) = [one for one in whole.marks if one.about == "tag"]
    assert mark.name == "night" and mark.fired.at_ms == block.arrived_ms_L[mark.fired.after - 1]


def cut(block: LabelBlock, first: int, end: int) -> LabelBlock:
    """Rows `first` to `end` of a block."""
    names = [name for name, value in vars(block).items() if value is not None]
    return replace(block, **{name: getattr(block, name)[first:end] for name in names})


def test_void_labels_start_the_evidence_anew() -> None:
    """An acknowledgement stays if the group is marked again on labels that had arrived by then; so do messages."""
    block = tagged(400)
    state = GroupState.start(3, SETTINGS).take(block).acknowledge(SEEN)
    last_ms = state.marks[-1].fired.at_ms
    state = state.with_delivery("hook", Delivery(fired_ms=last_ms, delivered_ms=last_ms + 5))
    assert state.anew(401) is None and state.anew(0) is None
    anew = state.anew(300)
    assert anew is not None and anew.labels == anew.sequence == 0 and not anew.marks
    again = anew.take(cut(block, 0, 200)).take(cut(block, 200, 400))
    assert again.marks == state.marks and again.deliveries == state.deliveries
    assert restarting_groups(state.tree(), 300) == (anew.tree(), 0)
    assert restarting_groups({"form": 7}, 300) is None
    early = SEEN.model_copy(update={"at_ms": 1})  # before any label: it cannot be about these
    other = GroupState.start(3, SETTINGS).take(block).acknowledge(early).anew(1)
    assert other is not None and all(mark.acknowledged is None for mark in other.take(block).marks)


def test_a_later_mark_is_told_too() -> None:
    block = tagged(400)
    state = GroupState.start(3, SETTINGS).take(block)
    told = state.with_delivery("hook", Delivery(fired_ms=state.marks[-1].fired.at_ms, delivered_ms=1))
    confidence_N = np.full(400, 0.97)
    later = labels(confidence_N, np.zeros(400), first=400, predicted_N=np.zeros(400, int))
    after = told.take(replace(later, tags=["dusk"] * 400))
    assert {mark.name for mark in after.marks} > {"night"} and after.deliveries == {}
    assert after.paging is after.marks[-1] and after.acknowledge(SEEN, "tag", "dusk").paging != after.paging
    seen = after.acknowledge(SEEN, labels=400)  # the page that somebody saw was about 400 labels
    assert [mark.acknowledged is not None for mark in seen.marks] == [mark.fired.after <= 400 for mark in after.marks]
    assert seen.paging is not None and seen.paging.acknowledged is None


def test_damaged_states_are_refused() -> None:
    tree = GroupState.start(3, SETTINGS).take(tagged(400)).tree()
    changes: list[dict[str, Any]] = [{"alpha": 0.2}, {"labels": 3}, {"marks": []}, {"form": 2}]
    for change in changes:
        with pytest.raises(StoreError, match=r"the evidence about tags and classes in the store is damaged"):
            GroupState.read({**tree, **change}, 3, SETTINGS)


def test_sentences() -> None:
    classes = ["cat", "dog", "eel"]
    empty = group_alarms(GroupState.start(3, SETTINGS), classes)
    assert empty.state == "quiet" and empty.reading.startswith("No label has been evaluated yet")
    state = GroupState.start(3, SETTINGS).take(tagged(900))
    part = group_alarms(state, classes)
    night = next(one for one in part.groups if one.name == "night")
    assert part.state == "fired" and night.is_marked and night.ever_marked_after and night.threshold > 40
    assert {one.name for one in part.groups} == {"day", "night", "(no tag)", *classes}
    assert "are marked now: tag night" in part.reading or "is marked now: tag night" in part.reading
    assert "at most 5% of the marked ones" in part.reading and "at most 2.5%." in part.reading
    known = group_alarms(state.acknowledge(SEEN), classes)
    assert known.state == "acknowledged" and "Nobody has" in part.reading and "Nobody has" not in known.reading
    many = labels(np.full(150, 0.9), np.ones(150))
    crowded = GroupState.start(3, SETTINGS).take(replace(many, tags=[f"t{k}" for k in range(150)]))
    assert "50 labels had a tag or class that came after the first 100." in group_alarms(crowded, classes).reading


def test_report_page_and_metrics(client: Client) -> None:
    version = ask(client)
    until(lambda: groups(client)["state"] == "fired")
    until(lambda: groups(client)["labels"] == 200)
    rows = {row["name"]: row for row in client.report(by="tag")["tags"]}
    assert rows["night"]["more_than_chance"] and not rows["day"]["more_than_chance"]
    assert rows["night"]["limit"] == rows["day"]["limit"] == 0.02
    cautions = client.report(by="tag")["cautions"]
    assert any("Of 2 tags, 1 is marked: their calibration error was above 0.02" in caution for caution in cautions)
    windowed = client.report(by="tag", since=0)["tags"]
    assert all(row["limit"] is None for row in windowed)
    (check,) = [one for one in client.report()["checks"] if one["about"] == "tag"]
    assert check["reading"].startswith("1 of 2 tags is off by more than 0.02: night, right 0%")
    page = client.get("/calibration-report?by=tag", headers={"accept": "text/html"}).text
    assert '<input type="hidden" name="labels" value="200">' in page
    assert "Which tags and classes are off?" in page and "tag night" in page and f'action="{ACKNOWLEDGE}"' in page
    text = client.get("/metrics").text
    key = f'model="tiny",version="{version}"'
    for name, value in (("watched", 2), ("marked", 1), ("ever_marked", 1), ("unacknowledged", 1)):
        assert f'trueodds_groups_{name}{{by="tag",{key}}} {value}.0' in text


def test_the_first_hundred_tags_have_alarms_and_keep_them(client: Client) -> None:
    """The answers with later tags share a row of the table, which has no alarm and no mark."""
    rng = np.random.default_rng(0)
    rows = [{"id": f"r{n}", "confidence": 0.9, "predicted": "ham", "tag": f"t{n // 2}"} for n in range(206)]
    client.send("/observe", {"observations": rows, "model": "m", "version": "1", "classes": ["ham", "spam"]})
    for part in (rows[:200], rows[200:]):
        client.label(
            [{"id": row["id"], "label": "ham" if rng.random() < 0.9 else "spam", "model": "m"} for row in part]
        )
    until(lambda: client.report(model="m")["groups"]["labels"] == 206)
    report = client.report(model="m", by="tag")
    assert [one["name"] for one in report["groups"]["groups"] if one["about"] == "tag"] == [f"t{k}" for k in range(100)]
    assert report["groups"]["left_out"] == 6
    limits = {row["name"]: row["limit"] for row in report["tags"]}
    assert len(limits) == 101 and limits.pop("(other)") is None and set(limits.values()) == {0.02}
    (caution,) = [one for one in report["cautions"] if "are marked" in one]
    assert caution.startswith("Of 100 tags, 0 are marked") and caution.endswith("1 more row has no alarm.")
    page = client.get("/calibration-report", params={"model": "m", "by": "tag", "format": "html"}).text
    assert page.count("no alarm (") == 1
    assert 'trueodds_groups_watched{by="tag",model="m",version="1"} 100.0' in client.get("/metrics").text
    assert client.report(model="m", tag="t102")["answers"] == 2


def test_acknowledging_and_rearming(client: Client) -> None:
    version = ask(client, 10)
    body = {"model": "tiny", "version": version, **ADA}
    assert "no such tag or class of tiny/" in client.refusal(ACKNOWLEDGE, body, 409)
    assert "the alarms by group are still armed" in client.refusal(REARM, body, 409)
    ask(client, 190, seed=1)
    assert "is marked for good and not acknowledged" in client.refusal(REARM, body, 409)
    assert "tag and class are both given" in client.refusal(ACKNOWLEDGE, {**body, "tag": "day", "class": CLASSES[0]})
    assert "expected model, version, who and why, and maybe tag or class" in client.refusal(
        ACKNOWLEDGE, {**body, "null": "ece"}
    )
    assert "'none such'" in client.refusal(ACKNOWLEDGE, {**body, "class": "none such"})
    assert "no such tag or class" in client.refusal(ACKNOWLEDGE, {**body, "tag": "day"}, 409)
    unseen = urlencode({**body, "labels": "5"})  # a page from before the mark
    answer = client.post(ACKNOWLEDGE, content=unseen, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 409 and groups(client)["state"] == "fired"
    assert "labels: " in client.refusal(ACKNOWLEDGE, {**body, "labels": "many"})
    part = client.send(ACKNOWLEDGE, {**body, "tag": "night"})
    night = next(one for one in part["groups"] if one["name"] == "night")
    assert night["ever_marked_at"] <= night["acknowledged"]["at"]
    assert all(night["acknowledged"][name] == body[name] for name in ("who", "why"))
    assert night in groups(client)["groups"]
    assert all(one["acknowledged"] is None for one in part["groups"] if one["name"] != "night")
    assert "Ada has already acknowledged this mark" in client.refusal(ACKNOWLEDGE, {**body, "tag": "night"}, 409)
    if part["state"] == "fired":
        client.send(ACKNOWLEDGE, body)
    form = urlencode({**body, "why": "lamp repaired"})
    answer = client.post(REARM, content=form, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 303
    part = groups(client)
    assert part["state"] == "quiet" and part["labels"] == 0 and part["rearmings"][0]["labels"] == 200
    assert "Ada re-armed the alarms by group" in part["reading"] and "lamp repaired" in part["reading"]
    ask(client, 60, seed=2)
    until(lambda: groups(client)["labels"] == 60)


def test_webhooks_are_called_where_this_is_asked_for(serve: Callable[..., Client], hook: Hook) -> None:
    client = serve({"alarm_webhook": hook.url, "alarm_groups": True})
    version = ask(client)
    until(lambda: any(call.body["type"] == "group-alarm" for call in hook.calls))
    told = next(call.body for call in hook.calls if call.body["type"] == "group-alarm")
    last = {"about": told["about"], "group": told["group"]}  # it is about the last mark, and names all
    assert (told["model"], told["version"]) == ("tiny", version) and last in told["marked_for_good"]
    assert {"about": "tag", "group": "night"} in told["marked_for_good"] and "tag night" in told["reading"]


def test_webhooks_are_not_called_otherwise(serve: Callable[..., Client], hook: Hook) -> None:
    client = serve({"alarm_webhook": hook.url})
    ask(client)
    until(lambda: groups(client)["state"] == "fired" and hook.calls)
    assert {call.body["type"] for call in hook.calls} == {"calibration-alarm"}


def test_damaged_evidence_leaves_the_rest_of_the_report(client: Client) -> None:
    version = ask(client, 40)
    store = client.app.state.runtime.store
    until(lambda: client.run(store.read_state("tiny", version, GROUPS)))
    client.run(store.update_state("tiny", version, GROUPS, lambda tree, block: {**tree, "labels": -1}))
    report = client.report(by="tag")
    assert report["groups"] is None and report["tags"][0]["limit"] is None
    assert any("The alarms by group are unavailable" in caution for caution in report["cautions"])
    assert f'trueodds_groups_marked{{by="tag",model="tiny",version="{version}"}}' not in client.get("/metrics").text
